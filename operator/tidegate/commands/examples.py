"""Examples of each command, with which its help opens: what it does, and what is typed.

They stand together, and not at the commands, so that they can be read as one page. docs/cli.md has
them too, where a test tries each line.
"""

_PAGE = r"""
= doctor
# Check everything that the policy in the cluster needs
tidegate doctor streaming/orders
# Check with the rights of the operator
tidegate doctor --as system:serviceaccount:tidegate:tidegate
# Check files before they are applied
tidegate doctor -f examples/
= plan
# Preview the changes of the policy in the cluster
tidegate plan streaming/orders
# Preview files, without Kubernetes
tidegate plan -f policy.yaml -f tiers.yaml
# List the users whose quotas would change
tidegate plan -o jsonpath='{.changes[*].entity.user}'
= explain
# Explain the quota of a user
tidegate explain --user alice
# Explain it for one client id, by the brokers alone
tidegate explain -u alice -c app --bootstrap-servers kafka-1:9092 \
    --ledger-topic __tidegate_ledger
= top
# Watch until Ctrl-C
tidegate top streaming/orders
# Print one update with all members
tidegate top --once --members 0
= reassignments
# Show the reassignments that are under way
tidegate reassignments streaming/orders
# Follow them until Ctrl-C
tidegate reassignments --watch --interval 10
= queues
# List the delay queues of all namespaces
tidegate queues
# Show one in detail
tidegate queues streaming/unpaid
= audit
# Show what the running operator decided
kubectl logs -n tidegate deploy/tidegate | tidegate audit
# Show why a member was throttled in the last two hours
tidegate audit --audit-file audit.jsonl --entity user=alice --since 2h
# Sum up by level
tidegate audit --audit-file audit.jsonl --summary
= console
# Open the console without a cluster, on a simulated evening
tidegate console --play
# Show the policies of one namespace
tidegate console -n streaming
= simulate
# Simulate an evening
tidegate simulate examples/simulate/evening-backfill.yaml
# Simulate your own policy and tiers, and plot the result
tidegate simulate policy.yaml tiers.yaml load.yaml --plot load.svg
= import
# Generate tiers from the quotas in Kafka
tidegate import streaming/orders > tiers.yaml
# Give the clients of checkout level L0
tidegate import streaming/orders --level-of 'checkout*=L0'
# Also propose contracts for clients without a quota
tidegate import streaming/orders --from-usage 7d
= pause
# Pause a policy
tidegate pause streaming/orders
# Print the paused policy instead, to apply later
tidegate pause streaming/orders --dry-run=client -o yaml
= resume
# Resume a policy
tidegate resume streaming/orders
# Show the request without sending it
tidegate resume streaming/orders --dry-run=client
= override create
# Exempt a user from throttling for an hour
tidegate override create streaming/orders --user alice --exempt \
    --for 1h --reason backfill
# Print an override as YAML, without a cluster
tidegate override create streaming/orders --user alice --fetch 40M \
    --form perPartition --for 2h --reason backfill \
    --dry-run=client -o yaml
# Exempt it every night for the next 90 days
tidegate override create streaming/orders --user alice --exempt \
    --recurrence 22:00 06:00 --time-zone Europe/Berlin --for 90d \
    --reason "nightly backfill"
= confirm-removal
# Show what is held
tidegate confirm-removal streaming/orders
# Approve it
tidegate confirm-removal streaming/orders --yes
= resync
# Reapply all quotas that are left alone
tidegate resync streaming/orders
# Reapply those of one user
tidegate resync streaming/orders --entity user=alice
= restore
# Show what would be restored
tidegate restore --bootstrap-servers kafka-1:9092
# Restore the quotas of one policy
tidegate restore --bootstrap-servers kafka-1:9092 \
    --policy streaming/orders --yes
= run
# Run the operator for one namespace
tidegate run --namespace streaming
# Run it from a laptop, with readable logs
tidegate run -n streaming --lease-namespace tidegate --log-format console
= forward
# Forward a queue whose topics begin with unpaid.
tidegate forward --prefix unpaid --bootstrap-servers kafka-1:9092 \
    --default-target orders
# Allow messages to name their own target
tidegate forward --prefix unpaid --bootstrap-servers kafka-1:9092 \
    --allowed 'orders.*' --guarantee ExactlyOnce
= ledger rebuild
# Let the operator write the ledger again
tidegate ledger rebuild streaming/orders
# Show the request without sending it
tidegate ledger rebuild streaming/orders --dry-run=client
= ledger accept
# Continue without the lost records
tidegate ledger accept streaming/orders
# Take the quotas that are there now for the originals
tidegate ledger accept streaming/orders --keep-quotas
= ledger import
# Show what would be moved
tidegate ledger import --zookeeper zk-1:2181 \
    --bootstrap-servers kafka-1:9092
# Move the ledger
tidegate ledger import --zookeeper zk-1:2181 \
    --bootstrap-servers kafka-1:9092 --yes
= rollup job
# Publish one hour, as the operator's Jobs do
tidegate rollup job --policy streaming/orders \
    --window-start 2026-11-22T07:00:00Z \
    --window-end 2026-11-22T08:00:00Z
# Publish five minutes of the current hour
tidegate rollup job --policy streaming/orders \
    --window-start 2026-11-22T08:00:00Z --window-end 2026-11-22T08:05:00Z
= rollup run
# Build tables of the last day from a Prometheus
tidegate rollup run --prometheus http://localhost:9090 --from 1d \
    --out usage/
# Build them with tiers and contracts
tidegate rollup run --prometheus http://localhost:9090 --from 1d \
    --out usage/ -f policy.yaml -f tiers.yaml
= rollup backfill
# List the hours that are missing
tidegate rollup backfill --policy streaming/orders --from 30d \
    --dry-run=client
# Fill them
tidegate rollup backfill --policy streaming/orders --from 30d
= rollup show
# Show who used most in the last day
tidegate rollup show usage_1h --store usage/ --from 1d
# Show the fullest brokers
tidegate rollup show broker_1h --store usage/ --most 5
= rollup verify
# Verify the tables in a folder
tidegate rollup verify --store usage/
# Verify those in a bucket
tidegate rollup verify --store s3://usage/orders
= report write
# Report on a month
tidegate report --store usage/ --month 2026-10
# With prices, by team
tidegate report --store usage/ --month 2026-10 --rate-card prices.yaml \
    --by label:team
= report close
# Close a month
tidegate report close 2026-10 --store usage/
# Close it with prices
tidegate report close 2026-10 --store usage/ --rate-card prices.yaml
= report adjustments
# Show what changed since
tidegate report adjustments 2026-10 --store usage/
# For programs
tidegate report adjustments 2026-10 --store usage/ -o json
= forecast
# Forecast the next week, and who would be throttled
tidegate forecast --store usage/ -f policy.yaml -f tiers.yaml
# Propose a calendar
tidegate forecast --store usage/ -f policy.yaml -f tiers.yaml \
    --time-zone Europe/Berlin -o yaml
= help
# Show the help of a command
tidegate help plan
# Show that of a command in a group
tidegate help override create
= version
# Show versions
tidegate version
# Print the version alone
tidegate version -o jsonpath='{.version}'
= completion
# Complete in this shell
source <(tidegate completion bash)
# Complete in every new fish shell
tidegate completion fish > ~/.config/fish/completions/tidegate.fish
"""
_EXAMPLE = "# "

EXAMPLES = {
    name: text.replace(f"\n{_EXAMPLE}", f"\n\n{_EXAMPLE}")
    for name, _, text in (part.strip().partition("\n") for part in _PAGE.split("\n= ")[1:])
}
"""The text of each command's examples, by its name after `tidegate`."""


def count_of(name: str) -> int:
    """How many examples the command has."""
    return EXAMPLES[name].count(_EXAMPLE)
