/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For tests of memory that may not be there. */
#ifndef TOUCH_H
#define TOUCH_H

#include <setjmp.h>

#define PAGE 4096UL

static sigjmp_buf back;

/* The handler of the signals that touch() is to tell. */
static inline void caught(int number)
{
	siglongjmp(back, number);
}

/* The signal that reading (or writing) the byte raises, or 0. */
static inline int touch(volatile char *address, int write)
{
	int number = sigsetjmp(back, 1);

	if (number)
		return number;
	if (write)
		*address = 1;
	else
		(void)*address;
	return 0;
}

#endif
