// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reboot and sleep. On an orderly reboot, power-off or kexec cells end and the
 * hypervisor leaves, so that firmware and the next kernel find a bare machine.
 * Locked cells stay: the hypervisor halts Linux when it resets the machine. Sleep
 * is refused: a processor forgets the hypervisor in it. A panic touches nothing,
 * and the realm goes on.
 */
#include <linux/io.h>
#include <linux/notifier.h>
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "crtos.h"

/*
 * The next kernel would take memory for free in which programs of a locked realm live,
 * so Linux ends here.
 */
static void refuse_kexec(const char *command)
{
	if (!crtos_any_locked() || !command || strcmp(command, "kexec reboot"))
		return;
	pr_notice("crtos: no other kernel beside a locked cell: Linux is halted\n");
	/* The reset control register: beside a locked cell, the hypervisor halts all CPUs. */
	outb(0x0e, 0xcf9);
}

static int on_reboot(struct notifier_block *block, unsigned long action, void *data)
{
	int i;

	refuse_kexec(data);
	/* Whoever holds the lock may wait for what reboot has stopped. */
	if (!mutex_trylock(&crtos.lock)) {
		pr_notice("crtos: reboot while the configuration changes: the hypervisor stays\n");
		return NOTIFY_DONE;
	}
	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i])
			crtos.cells[i]->owner = NULL;
	crtos_cells_release(NULL);
	if (crtos.enabled && !crtos_cell_mask())
		crtos_disable(NULL);
	mutex_unlock(&crtos.lock);
	return NOTIFY_DONE;
}

static int on_sleep(struct notifier_block *block, unsigned long action, void *data)
{
	if (action != PM_SUSPEND_PREPARE && action != PM_HIBERNATION_PREPARE)
		return NOTIFY_DONE;
	/* Without crtos.lock, which may be held for long: a launch after this look is not seen. */
	if (!READ_ONCE(crtos.enabled))
		return NOTIFY_OK;
	pr_info("crtos: [sleep] no sleep while the hypervisor runs: crtos down first\n");
	return notifier_from_errno(-EBUSY);
}

static struct notifier_block reboot_block = {
	.notifier_call = on_reboot,
};

static struct notifier_block sleep_block = {
	.notifier_call = on_sleep,
};

/**
 * crtos_power_init() - hear of reboot and sleep
 *
 * Return: 0 or a negative error.
 */
int crtos_power_init(void)
{
	int error = register_reboot_notifier(&reboot_block);

	if (error)
		return error;
	error = register_pm_notifier(&sleep_block);
	if (error)
		unregister_reboot_notifier(&reboot_block);
	return error;
}

/**
 * crtos_power_exit() - hear of them no more
 */
void crtos_power_exit(void)
{
	unregister_pm_notifier(&sleep_block);
	unregister_reboot_notifier(&reboot_block);
}
