/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that the attacker builds for: names of
 * functions for model-specific registers.
 */
#ifndef ATTACK_COMPAT_H
#define ATTACK_COMPAT_H

#include <linux/version.h>

#include <asm/msr.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define wrmsrq	wrmsrl
#define wrmsrq_safe	wrmsrl_safe
#define rdmsrq_safe	rdmsrl_safe
#define rdmsrq_safe_on_cpu	rdmsrl_safe_on_cpu
#define wrmsrq_safe_on_cpu	wrmsrl_safe_on_cpu
#endif

#endif /* ATTACK_COMPAT_H */
