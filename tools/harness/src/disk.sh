# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Makes a machine of the packages in the folder $1: what an installer would write, and a unit for
# the agent, by which the host runs scripts.
set -eu
root=$1
cat /proc/sys/kernel/random/uuid | tr -d - >"$root/etc/machine-id"
echo crtos >"$root/etc/hostname"
echo '127.0.0.1 localhost crtos' >"$root/etc/hosts"
echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
# There is no network, and nobody logs in.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap
mkdir -p "$root/var/log/journal"
cat >"$root/etc/systemd/system/crtos-agent.service" <<'END'
[Unit]
Description=Runs scripts of the host
Requires=dev-virtio\x2dports-crtos.control.device dev-virtio\x2dports-crtos.stdin.device
After=dev-virtio\x2dports-crtos.control.device dev-virtio\x2dports-crtos.stdin.device

[Service]
ExecStart=/usr/local/sbin/crtos-agent serve
END
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -sf ../crtos-agent.service "$wants/crtos-agent.service"
