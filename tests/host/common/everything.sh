# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What packages may leave behind.

# Prints files, users and groups, without what logs, caches and backups hold, what belongs to DKMS,
# to systemd and to the tests, and copies of files that tools make when they change them. What
# systemd remembers for packages is among it.
everything() {
	find / -xdev \( -path /root -o -path /mnt -o -path /tmp -o -path /run -o -path /var/log \
		-o -path /var/cache -o -path /var/backups -o -path /var/tmp -o -path /var/lib/apt \
		-o -path /var/lib/dpkg -o -path '/var/lib/dkms/mok.*' -o -path '/etc/*-' \
		-o -path '/var/lib/systemd/*' ! -path '/var/lib/systemd/deb-*' \) -prune -o -print | sort
	getent passwd
	getent group
}
