#!/bin/sh
# kubelet sets these where they differ from what it wants. They are the machine's, not the container's, and would stay when the lab is
# gone; so within this container the files are covered with ones that already say what kubelet wants to read.
set -eu
mkdir /run/kernel-settings
while read -r name value; do
    echo "$value" > "/run/kernel-settings/$name"
    mount --bind "/run/kernel-settings/$name" "/proc/sys/$(echo "$name" | tr . /)"
done <<SETTINGS
vm.overcommit_memory 1
vm.panic_on_oom 0
kernel.panic 10
kernel.panic_on_oops 1
kernel.keys.root_maxkeys 1000000
kernel.keys.root_maxbytes 25000000
SETTINGS
