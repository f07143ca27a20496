/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What channel_core.h needs from Linux, for compilation on a host:
 *
 *	cc -include module/channel_host.h ... test.c
 *
 * or simply #include "channel_core.h" outside the kernel. For tests only.
 */
#ifndef CRTOS_CHANNEL_HOST_H
#define CRTOS_CHANNEL_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define __aligned(bytes)	__attribute__((aligned(bytes)))
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value)	__atomic_store_n(&(x), (value), __ATOMIC_RELAXED)
#define smp_load_acquire(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define xchg(p, v)		__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define try_cmpxchg(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false,		\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define __ffs(word)		((unsigned long)__builtin_ctzl(word))

#endif /* CRTOS_CHANNEL_HOST_H */
