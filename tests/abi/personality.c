// SPDX-License-Identifier: MIT OR Apache-2.0
/* personality: what it is, and programs at addresses that are not random. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "children.h"

#define ASK 0xffffffffUL

/* Where a program has its stack, its heap and what it maps. */
struct places {
	const void *places[3];
};

/* Writes its places to descriptor 9. */
ROLE(placed)
{
	struct places own = { { arguments, sbrk(0),
				mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) } };

	return count == 1 && write(9, &own, sizeof(own)) == sizeof(own) ? 0 : 1;
}

static struct places execute(unsigned long persona)
{
	struct places found;
	int ends[2];

	CHECK(pipe(ends) == 0);
	pid_t child = fork();

	if (child == 0) {
		personality(persona);
		dup2(ends[1], 9);
		execl("/proc/self/exe", "placed", NULL);
		_exit(2);
	}
	CHECK(read(ends[0], &found, sizeof(found)) == sizeof(found) && exits_with(child, 0));
	close(ends[0]);
	close(ends[1]);
	return found;
}

CASE(a_process_has_that_of_linux)
{
	CHECK(personality(ASK) == 0 && personality(0) == 0);
}

CASE(what_is_set_is_told_and_inherited)
{
	CHECK(personality(ADDR_NO_RANDOMIZE) == 0 && personality(ASK) == ADDR_NO_RANDOMIZE);
	pid_t child = fork();

	if (child == 0)
		_exit(personality(ASK) == ADDR_NO_RANDOMIZE ? 0 : 1);
	CHECK(exits_with(child, 0) && personality(0) == ADDR_NO_RANDOMIZE);
}

CASE(a_program_lies_where_it_lay_before)
{
	struct places first = execute(ADDR_NO_RANDOMIZE), second = execute(ADDR_NO_RANDOMIZE);

	CHECK(memcmp(&first, &second, sizeof(first)) == 0);
	first = execute(0);
	second = execute(0);
	for (int i = 0; i < 3; i++)
		CHECK(first.places[i] != second.places[i]);
}

CASE(a_version_of_old_is_told)
{
	struct utsname name;

	CHECK(personality(UNAME26) == 0 && uname(&name) == 0);
	CHECK(strncmp(name.release, "2.6.", 4) == 0 && personality(0) == UNAME26);
	CHECK(uname(&name) == 0 && strncmp(name.release, "2.6.", 4) != 0);
}
