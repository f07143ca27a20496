# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs of one C library that wait for each other across the realms: tests/programs/exchange.c.

file=/dev/shm/exchange

# on WHERE COMMAND...: the program, in place of the shell.
on() {
	local where=$1; shift
	if [ "$where" = realm ]; then exec crtos run -- "$exchange" $file "$@"
	else exec "$exchange" $file "$@"; fi
}

fresh() { rm -f $file; "$exchange" $file make; }

# turns WHERE0 WHERE1: both, by turns.
turns() {
	local first second
	fresh
	on "$1" turns 0 "$count" >/tmp/turns.0 2>&1 & first=$!
	(on "$2" turns 1 "$count") >/tmp/turns.1 2>&1; second=$?
	wait $first && [ $second = 0 ]
}

# says FILE TEXT: waits until a program has said that.
says() { await "grep -q '$2' $1"; }

# Each of the four ways tells the same of its turns.
all_turns() {
	local where begin role
	rm -f /tmp/native
	for where in 'linux linux' 'realm realm' 'realm linux' 'linux realm'; do
		begin=$(date +%s%N)
		# shellcheck disable=SC2086
		turns $where || { echo "$where:"; tail /tmp/turns.*; exit 1; }
		echo "$where: $count turns of each kind, $((($(date +%s%N) - begin) / 1000000)) ms"
		[ -s /tmp/native ] || cp /tmp/turns.0 /tmp/native
		for role in 0 1; do
			diff /tmp/turns.$role /tmp/native || { echo "$where: role $role"; exit 1; }
		done
	done
}

# Who holds a robust mutex is killed, or ends.
owner_dies() {
	local where how holder taker
	for where in 'linux linux' 'realm realm' 'realm linux' 'linux realm'; do
		for how in hold exit; do
			set -- $where
			fresh
			on "$1" $how >/tmp/hold 2>&1 & holder=$!
			says /tmp/hold held || exit 1
			on "$2" take >/tmp/take 2>&1 & taker=$!
			sleep 0.2
			[ $how = exit ] || kill -9 $holder
			wait $taker && [ "$(cat /tmp/take)" = 'the owner died' ] ||
				{ echo "$where, $how: $(cat /tmp/take)"; exit 1; }
			wait $holder
			echo "$1 $how, $2: the owner died"
		done
	done 2>/dev/null
}

# A waiter is killed; what is posted then reaches the one who is left.
waiter_dies() {
	local where post first second
	for where in 'linux realm' 'realm linux' 'realm realm'; do
		set -- $where
		for post in linux realm; do
			fresh
			on "$1" wait >/tmp/first 2>&1 & first=$!
			says /tmp/first waiting && sleep 0.2
			on "$2" wait >/tmp/second 2>&1 & second=$!
			says /tmp/second waiting && sleep 0.2
			kill -9 $first
			wait $first
			(on $post post 1)
			wait $second || { echo "$1 waits and is killed, $2 waits, $post posts"; exit 1; }
			[ ! -d /proc/$first ] || { echo "pid $first is there"; exit 1; }
		done
		echo "$1 is killed, $2 is woken"
	done 2>/dev/null
}

# Who wakes unmaps the memory at once, and lives on.
waker_unmaps() {
	local where first dropper
	for where in 'linux realm' 'realm linux'; do
		set -- $where
		fresh
		on "$1" wait >/tmp/first 2>&1 & first=$!
		says /tmp/first waiting && sleep 0.2
		on "$2" drop >/tmp/drop 2>&1 & dropper=$!
		wait $first || { echo "$1 waits, $2 wakes and unmaps"; exit 1; }
		kill -9 $dropper
		wait $dropper
		echo "$1 waits, $2 unmaps: woken"
	done 2>/dev/null
}

# More words than there is room for: a real-time thread waits for nobody, and nobody is left.
many_words() {
	local where many waker
	for where in 'linux realm' 'realm linux' 'realm realm'; do
		set -- $where
		fresh
		on "$1" many 200 >/tmp/many 2>&1 & many=$!
		says /tmp/many waiting && sleep 1
		on "$2" wakes 200 >/tmp/wakes 2>&1 & waker=$!
		wait $many ||
			{ echo "200 words: $1 waits, $2 wakes"; cat /tmp/many /tmp/wakes; exit 1; }
		kill -9 $waker
		wait $waker
		echo "$1 waits at 200 words, $2 wakes"
	done 2>/dev/null
}

# A lock with an owner is its realm's own: who wants it in the other one does not get it from the
# owner, who goes on. The C library says TIMED_OUT for ETIMEDOUT.
locks_with_owners() {
	local timed_out=$1 where holder taker taken
	for where in 'linux linux' 'realm realm' 'linux realm' 'realm linux'; do
		set -- $where
		fresh
		on "$1" pi-hold >/tmp/hold 2>&1 & holder=$!
		says /tmp/hold held || exit 1
		on "$2" pi-take >/tmp/take 2>&1 & taker=$!
		sleep 0.5
		kill -USR1 $holder
		wait $holder || { echo "PI: $where: $(cat /tmp/hold)"; exit 1; }
		wait $taker
		taken=$(head -1 /tmp/take)
		echo "$1 holds a lock that inherits, $2 wants it: $taken"
		[ "$1" != "$2" ] || [ "$taken" = taken ] || exit 1
		[ "$where" != 'linux realm' ] || [ "$taken" = "$timed_out" ] || exit 1
	done
}

# exchanges PROGRAM TIMED_OUT COUNT: all of them, with the realm up, and so many turns.
exchanges() {
	exchange=$1 count=$3
	all_turns
	owner_dies
	waiter_dies
	waker_unmaps
	many_words
	locks_with_owners "$2"
	rm -f $file
}
