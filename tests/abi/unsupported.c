// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls that fail on every Linux. */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "check.h"

CASE(numbers_of_no_linux_are_refused)
{
	FAILS(ENOSYS, syscall(400));
	FAILS(ENOSYS, syscall(1000));
	FAILS(ENOSYS, syscall(0x7fffffff));
	FAILS(ENOSYS, syscall(-1));
	FAILS(ENOSYS, syscall(SYS_create_module));
}

CASE(who_has_no_child_cannot_wait)
{
	FAILS(ECHILD, syscall(SYS_wait4, -1, 0, 0, 0));
	FAILS(ECHILD, syscall(SYS_waitid, 0, 0, 0, 4, 0));
}
