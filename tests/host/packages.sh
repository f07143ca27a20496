#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian packages: lintian has nothing to say; a Debian 12 with systemd's tools installs, upgrades,
# removes and purges them, and nothing is left; its systemd takes the units; DKMS builds the module.
# tier: full
# timeout: 1800
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
[ "$(id -u)" = 0 ] || exec sudo -E "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
./x deb >"$dir/list" || exit 1
mapfile -t packages <"$dir/list"
[ ${#packages[@]} = 3 ] || fail "these packages: ${packages[*]}"
version=$(dpkg-deb --field "${packages[0]}" Version)

# DKMS builds the module from its package, for a kernel of the tests; its scripts have it do so.
dkms=$(grep /crtos-dkms_ "$dir/list")
dpkg-deb --field "$dkms" Depends | grep -q '^dkms ' || fail 'the package does not need DKMS'
dpkg-deb --ctrl-tarfile "$dkms" | tar --extract --to-stdout ./postinst | grep -q dkms ||
	fail 'the package does not have DKMS build'
dpkg-deb --extract "$dkms" "$dir/sources"
mkdir "$dir/dkms"
headers=$(echo .cache/kernels/6.1/usr/src/linux-headers-*-amd64/Module.symvers)
[ -e "$headers" ] || fail 'no headers'
dkms build "crtos/$version" --sourcetree "$dir/sources/usr/src" --dkmstree "$dir/dkms" \
	-k tests --kernelsourcedir "$(realpath "$(dirname "$headers")")" >"$dir/out" 2>&1 ||
	{ fail 'DKMS does not build the module'; cat "$dir/out" "$dir"/dkms/crtos/*/build/make.log; }
find "$dir/dkms" -name 'crtos.ko*' | grep -q . || fail 'no module'

# The others in a Debian 12.
mapfile -t sources < <(find /etc/apt -name '*.sources' -o -name '*.list')
mmdebstrap --quiet --variant=minbase --mode=root --skip=check/empty \
	--include=systemd,kmod,iproute2 --aptopt='APT::Install-Recommends "false"' \
	bookworm "$dir/root" "${sources[@]}" || exit 1
cp "${packages[@]}" "$dir/root/"
cat >"$dir/root/inside" <<'END'
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
mount -t proc proc /proc
# What logs and caches hold, and copies of files that tools make when they change them.
files() { find / -xdev ! -path '/var/log/*' ! -path '/var/cache/*' ! -path '/var/lib/dpkg/*' \
	! -path '/tmp/*' ! -path '/run/*' ! -path '/etc/*-' | sort; }
files >/tmp/before
getent group crtos && fail 'the group is there before'
dpkg -i /crtos_*.deb /crtos-doc_*.deb >/tmp/out 2>&1 || { fail install; cat /tmp/out; }
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
touch /dev/crtos
dpkg -r crtos >/tmp/out 2>&1 && fail 'removed under the realm'
grep -q 'crtos down --force --unload' /tmp/out || { fail 'no remedy'; cat /tmp/out; }
rm /dev/crtos

dpkg -r crtos crtos-doc >/tmp/out 2>&1 || { fail remove; cat /tmp/out; }
[ -e /etc/crtos/realm.toml ] || fail 'removal took the configuration'
[ -e /usr/sbin/crtos ] && fail 'the command is left'
dpkg -P crtos crtos-doc >/tmp/out 2>&1 || { fail purge; cat /tmp/out; }
getent group crtos && fail 'the group is left'
files | diff /tmp/before - || fail 'files are left'
exit $failed
END
unshare --mount --fork chroot "$dir/root" bash /inside || failed=1
exit $failed
