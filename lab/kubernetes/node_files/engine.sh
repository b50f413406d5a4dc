#!/bin/sh
# engine.sh DIRECTORY PROGRAM ARGUMENT...: runs the program in a mount namespace of its own, which kubelet enters later.
# What they write to /run stays in it. So does what kubelet asks of the kernel for a whole machine: it finds that so already.
set -eu
directory=$1
shift
mount -t tmpfs run /run
mkdir "$directory/kernel"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/proc/sys/${setting%=*}
    if [ -e "$file" ]; then
        wanted=$directory/kernel/$(basename "$file")
        echo "${setting#*=}" > "$wanted"
        mount --bind "$wanted" "$file"
    fi
done
exec "$@"
