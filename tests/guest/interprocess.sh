#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of C++ that share memory by boost::interprocess, compiled as Debian has it: one in the
# realm and one in Linux exchange by its conditions, semaphores, locks with a name and queues of
# messages, and both change one map in one heap, as when both are under Linux.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# packages: g++,libboost-dev
# timeout: 2400
# uses: realms
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos
dmesg --clear

cat >interprocess.cc <<'END'
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/containers/map.hpp>
#include <boost/interprocess/containers/string.hpp>
#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/interprocess/managed_shared_memory.hpp>
#include <boost/interprocess/sync/interprocess_condition.hpp>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <boost/interprocess/sync/interprocess_semaphore.hpp>
#include <boost/interprocess/sync/named_condition.hpp>
#include <boost/interprocess/sync/named_mutex.hpp>
#include <boost/interprocess/sync/named_semaphore.hpp>
#include <boost/interprocess/sync/named_sharable_mutex.hpp>
#include <boost/interprocess/sync/scoped_lock.hpp>
#include <boost/interprocess/sync/sharable_lock.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <unistd.h>
using namespace boost::interprocess;

using Characters = allocator<char, managed_shared_memory::segment_manager>;
using Text = basic_string<char, std::char_traits<char>, Characters>;
using Pair = std::pair<const int, Text>;
using Map = map<int, Text, std::less<int>,
	allocator<Pair, managed_shared_memory::segment_manager>>;

struct State {
	interprocess_mutex mutex;
	interprocess_condition cond;
	interprocess_semaphore here{0}, there{0};
	long turn = 0, sum = 0, named_turn = 0, named_sum = 0;
};

static int role;
static long count;

static void wrong(const char *what)
{
	std::printf("wrong: %s\n", what);
	std::exit(1);
}

// Waits until both are here.
static void meet(State &state)
{
	(role ? state.here : state.there).post();
	(role ? state.there : state.here).wait();
}

// By turns: each waits for the other one's word.
template <class Mutex, class Condition>
static void turns(Mutex &mutex, Condition &cond, long &turn)
{
	scoped_lock<Mutex> lock(mutex);
	for (long mine = role; mine < 2 * count; mine += 2) {
		while (turn != mine)
			cond.wait(lock);
		turn++;
		cond.notify_all();
	}
}

// Messages both ways by queues that are full or empty most of the time.
static void messages()
{
	message_queue to(open_only, role ? "crtos-back" : "crtos-forth");
	message_queue from(open_only, role ? "crtos-forth" : "crtos-back");
	for (long sent = 0, taken = 0; sent < count || taken < count;) {
		char text[64] = {};
		message_queue::size_type length;
		unsigned priority;
		if (sent < count) {
			int size = std::snprintf(text, sizeof(text), "message %ld of %d", sent, role);
			if (taken == count)
				to.send(text, size, 0);
			else if (!to.try_send(text, size, 0))
				size = 0;
			if (size) {
				sent++;
				continue;
			}
		}
		from.receive(text, sizeof(text), length, priority);
		char expected[64];
		std::snprintf(expected, sizeof(expected), "message %ld of %d", taken++, !role);
		if (length != std::strlen(expected) || std::memcmp(text, expected, length))
			wrong(text);
	}
	std::puts("messages");
}

int main(int, char **arguments)
{
	role = std::atoi(arguments[1]);
	count = std::atol(arguments[2]);
	if (role == 0) {
		for (auto name : {"crtos-forth", "crtos-back"}) {
			message_queue::remove(name);
			message_queue(create_only, name, 4, 64);
		}
		named_mutex::remove("crtos-mutex");
		named_condition::remove("crtos-condition");
		named_sharable_mutex::remove("crtos-sharable");
		named_semaphore::remove("crtos-ready");
		shared_memory_object::remove("crtos-memory");
	}
	named_semaphore ready(open_or_create, "crtos-ready", 0);
	managed_shared_memory memory(open_or_create, "crtos-memory", 4 << 20);
	State &state = *memory.find_or_construct<State>("state")();
	Map &map = *memory.find_or_construct<Map>("map")(
		std::less<int>(), memory.get_allocator<Pair>());
	named_mutex mutex(open_or_create, "crtos-mutex");
	named_condition cond(open_or_create, "crtos-condition");
	named_sharable_mutex sharable(open_or_create, "crtos-sharable");
	if (role == 0) {
		std::puts("ready");
		std::fflush(stdout);
		ready.wait();
	} else {
		ready.post();
	}

	turns(state.mutex, state.cond, state.turn);
	std::puts("condition");
	turns(mutex, cond, state.named_turn);
	std::puts("named condition");
	for (long turn = 0; turn < count; turn++)
		meet(state);
	std::puts("semaphore");

	// Both make and free memory of one heap, and strings of one map: relative pointers.
	for (long turn = 0; turn < count; turn++) {
		int key = 2 * turn + role;
		scoped_lock<named_sharable_mutex> lock(sharable);
		map.emplace(key, Text("value", memory.get_allocator<char>()));
		for (int times = 0; times < turn % 20; times++)
			map.find(key)->second += "-longer";
		state.named_sum += key;
		if (turn % 3 == 2)
			map.erase(key - 2);
	}
	meet(state);
	{
		sharable_lock<named_sharable_mutex> lock(sharable);
		size_t length = 0;
		for (auto &pair : map)
			length += pair.second.size();
		std::printf("map of %zu, %zu characters, sum %ld, sane %d\n", map.size(), length,
			state.named_sum, memory.check_sanity());
	}
	messages();
	meet(state);
	if (role == 0) {
		for (auto name : {"crtos-forth", "crtos-back"})
			message_queue::remove(name);
		named_mutex::remove("crtos-mutex");
		named_condition::remove("crtos-condition");
		named_sharable_mutex::remove("crtos-sharable");
		named_semaphore::remove("crtos-ready");
		shared_memory_object::remove("crtos-memory");
	}
	return 0;
}
END
g++ -O1 -Wall -Werror -pthread -o interprocess interprocess.cc || exit 1

# play WHERE ROLE: one of the two, in place of the shell.
play() { on "$1" ./interprocess "$2" 1000; }

for where in 'linux linux' 'realm realm' 'realm linux' 'linux realm'; do
	# shellcheck disable=SC2086
	set -- $where
	begin=$(date +%s%N)
	(play "$1" 0) >seen.0 2>&1 &
	first=$!
	await 'grep -q ready seen.0' || fail "$where: $(cat seen.0)"
	(play "$2" 1) >seen.1 2>&1 || fail "$where: role 1 ended with $?"
	wait $first || fail "$where: role 0 ended with $?"
	echo "$where: $((($(date +%s%N) - begin) / 1000000)) ms"
	if [ "$where" = 'linux linux' ]; then
		cat seen.0
		mv seen.0 native.0
		mv seen.1 native.1
		crtos up --cpus 3 --memory 256M || exit 1
		continue
	fi
	for role in 0 1; do
		diff native.$role seen.$role || fail "$where: role $role"
	done
	[ -z "$(ls /dev/shm)" ] || fail "$where: files are left"
done
ends
exit $failed
