/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls into the hypervisor; see the hypercall part of the interface. */
#ifndef CRTOS_HYPERCALL_H
#define CRTOS_HYPERCALL_H

#include "abi.h"

/*
 * Only while the hypervisor holds this CPU, that is: while it is enabled.
 * Any context. Returns what the call returns, or a negative CRTOS_HV_* number.
 */
static inline s64 crtos_hypercall(u64 number, u64 a, u64 b, u64 c, u64 d)
{
	register u64 fourth asm("r10") = d;
	s64 result;

	asm volatile("vmmcall"
		     : "=a" (result)
		     : "a" (number), "D" (a), "S" (b), "d" (c), "r" (fourth)
		     : "memory");
	return result;
}

#endif /* CRTOS_HYPERCALL_H */
