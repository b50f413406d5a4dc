"""A rollup as a Job of Kubernetes: which hours its window asks for, what the Pod it runs in has to give, and executors beside it.

Who reads the policy and writes down what was found are the commands; what a run does is `rollup.spark`'s business.
"""
