/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What channel.h needs from Linux, for programs on a host that include it: the
 * tests of lib/channel, and nobody else. The orders are those that Linux's own
 * have, or stronger ones.
 */
#ifndef CRTOS_CHANNEL_HOST_H
#define CRTOS_CHANNEL_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#ifndef __aligned
#define __aligned(bytes)	__attribute__((__aligned__(bytes)))
#endif
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value)	__atomic_store_n(&(x), (value), __ATOMIC_RELAXED)
/* Pairs with what the caller says. */
#define smp_load_acquire(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
/* Pairs with what the caller says. */
#define smp_store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)
/* Pairs with what the caller says. */
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define xchg(p, v)		__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define try_cmpxchg(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false,		\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define __ffs(word)		((unsigned long)__builtin_ctzl(word))

#endif /* CRTOS_CHANNEL_HOST_H */
