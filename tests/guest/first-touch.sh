#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All pages of a real-time thread's program and its libraries are present before it uses them: the
# first access to a page takes no longer than another one.
# kernels: 6.1
# icount: yes
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
program=$PROGRAMS/first-touch
failed=0
"$program" >/dev/null || exit 1
# With a file that nobody has mapped yet, for pages of others are there already.
cp "$program" made-real-time && cp "$program" started-real-time || exit 1
sleep 2
read -r before constants variables < <(crtos run -- ./made-real-time)
echo "instructions for the first access: $before; by a real-time thread: $constants, to variables $variables"
[ "$before" -gt 300 ] || { echo 'FAILED the pages were there, and nothing is shown'; failed=1; }
[ "$constants" -le 100 ] && [ "$variables" -le 100 ] || { echo 'FAILED a real-time thread met pages that were not there'; failed=1; }
read -r before constants variables < <(chrt -f 50 crtos run -- ./started-real-time)
echo "started as real-time: $before, $constants, to variables $variables"
[ "$before" -le 100 ] && [ "$constants" -le 100 ] && [ "$variables" -le 100 ] || { echo 'FAILED not all was there'; failed=1; }
exit $failed
