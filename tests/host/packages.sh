#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian packages: lintian has nothing to say; a Debian 12 and a Debian 13 that do not run install,
# upgrade, remove and purge them, and nothing is left; their systemd takes the units; their DKMS
# builds the module for their kernel. `make install` does without packages.
# tier: full
# timeout: 3600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
[ "$(id -u)" = 0 ] || exec sudo -E "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
./x deb >"$dir/list" || exit 1
mapfile -t packages <"$dir/list"
[ ${#packages[@]} = 3 ] || fail "these packages: ${packages[*]}"

cat tests/host/common/everything.sh - >"$dir/inside" <<'END'
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
mount -t proc proc /proc
# Without packages, the command finds the other parts from where it is itself.
/opt/crtos/sbin/crtos version >/tmp/out
grep -q 'real-time kernel.* /opt/crtos/lib/crtos/kernel.elf *fits' /tmp/out ||
	{ fail 'make install'; cat /tmp/out; }
kernel=$(ls /usr/lib/modules)
# Its headers are there alone. What depmod writes is not DKMS's.
depmod "$kernel" 2>/dev/null
everything >/tmp/before
getent group crtos && fail 'the group is there before'
dpkg -i /crtos*.deb >/tmp/out 2>&1 || { fail install; cat /tmp/out; }
modinfo -k "$kernel" -F vermagic crtos | grep -q "^$kernel " ||
	{ fail 'DKMS built no module'; cat /var/lib/dkms/crtos/*/build/make.log; }
# With another image of the hypervisor it is another module, which `crtos up` loads anew.
srcversion() { modinfo -k "$kernel" -F srcversion crtos; }
source=$(echo /usr/src/crtos-*)
first=$(srcversion)
cp "$source/hypervisor.bin" /tmp
printf x >>"$source/hypervisor.bin"
dkms build --force -k "$kernel" "crtos/${source##*/crtos-}" >/tmp/out 2>&1 &&
	dkms install --force -k "$kernel" "crtos/${source##*/crtos-}" >/tmp/out 2>&1 ||
	{ fail 'DKMS, again'; cat /tmp/out; }
[ "$(srcversion)" != "$first" ] || fail 'another image is the same module'
mv /tmp/hypervisor.bin "$source/hypervisor.bin"
crtos --version || fail 'the command'
crtos version | grep -q 'real-time kernel.* /usr/lib/crtos/kernel.elf *fits' ||
	{ fail 'the kernel does not fit'; crtos version; }
getent group crtos >/dev/null || fail 'no group'
for file in /usr/share/man/man1/crtos-up.1.gz /usr/share/man/man5/realm.toml.5.gz \
	/usr/share/man/man7/crtos.7.gz \
	/usr/share/bash-completion/completions/crtos /usr/share/zsh/vendor-completions/_crtos \
	/usr/share/fish/vendor_completions.d/crtos.fish /lib/udev/rules.d/60-crtos.rules \
	/usr/share/doc/crtos/install.md /usr/share/doc/crtos/examples/realm.toml; do
	[ -e $file ] || fail "no $file"
done
find /usr/share/doc/crtos -name '*.md.gz' | grep . && fail 'links of pages lead nowhere'
bash -n /usr/share/bash-completion/completions/crtos || fail 'completion'

# The example is a configuration.
crtos up --config /usr/share/doc/crtos/examples/realm.toml --dry-run >/tmp/out 2>&1
grep -q 'line ' /tmp/out && { fail 'the example'; cat /tmp/out; }

# The units are off until somebody switches them on, and on afterwards.
systemd-analyze verify --man=no /lib/systemd/system/crtos.service \
	/lib/systemd/system/crtos-run@.service 2>&1 | grep crtos && fail 'systemd does not take the units'
[ "$(systemctl is-enabled crtos.service)" = disabled ] || fail 'it is on already'
systemctl enable crtos.service || fail enable
[ -e /etc/systemd/system/sysinit.target.wants/crtos.service ] || fail 'it is off'

# An upgrade keeps the configuration, and whether the service is on.
echo 'cpus = "3"' >/etc/crtos/realm.toml
dpkg -i /crtos_*.deb >/tmp/out 2>&1 || { fail upgrade; cat /tmp/out; }
[ "$(cat /etc/crtos/realm.toml)" = 'cpus = "3"' ] || fail 'another configuration'
[ "$(systemctl is-enabled crtos.service)" = enabled ] || fail 'it is off after an upgrade'

# A realm that cannot be taken down is not left alone.
mkdir -p /sys/module/crtos
touch /sys/module/crtos/initstate
dpkg -r crtos >/tmp/out 2>&1 && fail 'removed under the realm'
grep -q 'crtos: do what it says' /tmp/out || { fail 'no remedy'; cat /tmp/out; }
rm -r /sys/module

dpkg -r crtos crtos-dkms crtos-doc >/tmp/out 2>&1 || { fail remove; cat /tmp/out; }
[ -e /etc/crtos/realm.toml ] || fail 'removal took the configuration'
[ -e /usr/sbin/crtos ] && fail 'the command is left'
modinfo -k "$kernel" crtos >/dev/null 2>&1 && fail 'the module is left'
dpkg -P crtos crtos-dkms crtos-doc >/tmp/out 2>&1 || { fail purge; cat /tmp/out; }
everything | diff /tmp/before - || fail 'something is left, or gone'
exit $failed
END

# The machine's sources, for each release.
for release in bookworm trixie; do
	echo "$release"
	mkdir "$dir/$release.d"
	find /etc/apt \( -name '*.sources' -o -name '*.list' \) \
		-exec cp --target-directory "$dir/$release.d" {} +
	sed -i "s/bookworm/$release/g" "$dir/$release.d"/*
	mmdebstrap --quiet --variant=minbase --mode=root --skip=check/empty \
		--include=systemd,kmod,iproute2,dkms,gcc,make,libc6-dev,linux-headers-amd64 \
		--aptopt='APT::Install-Recommends "false"' \
		"$release" "$dir/root" "$dir/$release.d"/* || exit 1
	cp "${packages[@]}" "$dir/inside" "$dir/root/"
	make --silent install DESTDIR="$dir/root" PREFIX=/opt/crtos || fail 'make install'
	env --unset=TMPDIR unshare --mount --fork chroot "$dir/root" bash /inside || failed=1
	rm -rf "$dir/root"
done
exit $failed
