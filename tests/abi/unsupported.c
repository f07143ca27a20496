// SPDX-License-Identifier: MIT OR Apache-2.0
/* Numbers that no Linux has are ENOSYS. */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "check.h"

int main(void)
{
	FAILS(ENOSYS, syscall(400));
	FAILS(ENOSYS, syscall(1000));
	FAILS(ENOSYS, syscall(0x7fffffff));
	FAILS(ENOSYS, syscall(-1));
	FAILS(ENOSYS, syscall(SYS_create_module));
	FAILS(ECHILD, syscall(SYS_wait4, -1, 0, 0, 0));
	FAILS(ECHILD, syscall(SYS_waitid, 0, 0, 0, 4, 0));
	return finish();
}
