# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034
# Commands that do in the realm what they do under Linux.

failed=0
# Only commands whose names have this in them.
only=${1:-}
# same NAME SHELL: the shell command runs under Linux and in the realm, with equal status and
# output.
same() {
	local name=$1 command=$2 where status
	case $name in *$only*) ;; *) return ;; esac
	for where in linux realm; do
		rm -rf work && mkdir work && cd work || exit 1
		if [ $where = linux ]; then
			timeout 200 bash -c "$command" >../$where.out 2>../$where.err </dev/null; status=$?
		else
			timeout 200 crtos run -- bash -c "$command" >../$where.out 2>../$where.err \
				</dev/null
			status=$?
		fi
		cd .. || exit 1
		echo "status $status" >>$where.out
	done
	if cmp -s linux.out realm.out; then
		echo "ok $name"
		return
	fi
	echo "FAILED $name"
	diff linux.out realm.out | head -10
	head -5 realm.err
	failed=1
}
