# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What a Debian $release does with the packages, from a fresh disk to a purge.

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/share/first/target/deb" "$dir/share/second"

# packages FOLDER: makes them from the sources in the working directory.
packages() {
	local list
	list=$(./x deb) || exit 1
	grep -v crtos-doc_ <<<"$list" | xargs cp --target-directory "$1"
}

# edit FILE EXPRESSION: changes a file of the copied sources. It keeps its time, so that only what
# has changed in the sources themselves is built once more.
edit() {
	sed -i "$2" "$1" || exit 1
	cmp -s "$1" "$sources/$1" && { echo "$1 has nothing to change by $2"; exit 1; }
	touch -r "$sources/$1" "$1"
}

# Goes to a copy of the sources, of a version whose interface is another one, too. The folder stays.
next_version() {
	sources=$PWD
	local next=${CARGO_TARGET_DIR:-$PWD/target}/next
	mkdir -p "$next" && git ls-files -z | tar --create --null --files-from - |
		tar --extract --directory "$next" && ln -sfn "$PWD/.cache" "$next/.cache" &&
		cd "$next" || exit 1
	unset CARGO_TARGET_DIR CRTOS_ROOT
	edit Cargo.toml 's/^version = "[0-9.]*"$/version = "99.0.0"/'
	edit linux/module/main.c 's/MODULE_VERSION("[0-9.]*")/MODULE_VERSION("99.0.0")/'
	edit linux/module/abi.h 's/CRTOS_ABI_VERSION [0-9]*$/CRTOS_ABI_VERSION 99/'
	edit lib/abi/src/lib.rs 's/ABI_VERSION: u32 = [0-9]*;/ABI_VERSION: u32 = 99;/'
}

packages "$dir/share/first/target/deb"
(next_version && packages "$dir/share/second") || exit 1
cp tests/host/common/{debian-guest,everything}.sh tests/common/{blocks,remedies}.sh \
	docs/install.md "$dir/share/"

# guest STEP...: boots from the disk, and does these steps of the script for the guest.
guest() {
	./x vm --debian "${release:?}" --disk "$dir/disk" --share "$dir/share" --mem 3G --timeout 5000 \
		-- bash /mnt/share/debian-guest.sh "$@" </dev/null
}
guest install && guest started remedies upgrade remove
