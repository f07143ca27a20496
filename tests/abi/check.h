/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks that print one line each, the same on every run that passes. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

static inline void check(int passed, const char *what, int line)
{
	printf("%s %s\n", passed ? "ok" : "FAILED", what);
	if (!passed) {
		printf("  line %d, errno %d\n", line, errno);
		failures++;
	}
	fflush(stdout);
}

/* The condition holds. */
#define CHECK(condition) check((condition), #condition, __LINE__)

/* The call fails with this error. */
#define FAILS(error, call) \
	do { \
		errno = 0; \
		long result_ = (long)(call); \
		check(result_ == -1 && errno == (error), #call ": " #error, __LINE__); \
	} while (0)

/* An address that the compiler does not know. */
static inline void *at(long address)
{
	volatile long hidden = address;

	return (void *)hidden;
}

static inline int finish(void)
{
	return failures ? 1 : 0;
}

#endif
