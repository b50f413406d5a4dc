#!/bin/sh
# engine.sh DIRECTORY PREPARED DOCKERD_FLAG...: containerd and dockerd, in mount and process namespaces of their own.
# Whatever they write to /run, and the /lib/modules that kind has dockerd make, stays in these namespaces and ends with them.
# PREPARED is empty, or another dockerd's data directory, whose layers stand in for the empty ones of the same names.
set -eu
directory=$1
prepared=$2
shift 2
mount -t tmpfs run /run
if ! [ -d /lib/modules ]; then
    mkdir "$directory/lib" "$directory/lib.work"
    mount -t overlay lib -o "lowerdir=/usr/lib,upperdir=$directory/lib,workdir=$directory/lib.work" /usr/lib
fi
if [ -n "$prepared" ]; then
    # dockerd would mount these two on themselves, and hide what is mounted below them
    mount --bind "$directory/data" "$directory/data"
    mount --bind "$directory/data/overlay2" "$directory/data/overlay2"
    for layer in "$prepared"/overlay2/*/diff; do
        mount -o bind,ro "$layer" "$directory/data/${layer#"$prepared"/}"
    done
fi
containerd -c "$directory/containerd.toml" >> "$directory/log/containerd.log" 2>&1 &
exec dockerd "$@"
