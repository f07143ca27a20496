// SPDX-License-Identifier: GPL-2.0-only
/* The module comes and goes. */
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/stringify.h>

#include "crtos.h"
#include "realm.h"

struct crtos_system crtos = {
	.lock = __MUTEX_INITIALIZER(crtos.lock),
};

static int start_work(void)
{
	crtos.work = alloc_workqueue("crtos", WQ_UNBOUND | WQ_HIGHPRI, 0);
	return crtos.work ? 0 : -ENOMEM;
}

static void end_work(void)
{
	destroy_workqueue(crtos.work);
}

static int register_device(void)
{
	return misc_register(&crtos_device);
}

static void deregister_device(void)
{
	misc_deregister(&crtos_device);
	crtos_links_release(NULL);
}

/* What the module consists of, in the order in which it comes; it goes the other way round. */
static const struct {
	const char *name;
	int (*init)(void);
	void (*exit)(void);
} parts[] = {
	{ "its work queue", start_work, end_work },
	{ "its states of CPU hotplug", crtos_cpu_init, crtos_cpu_exit },
	{ "the doorbell's interrupts", crtos_doorbell_init, crtos_doorbell_exit },
	{ "notice of sleep", crtos_power_init, crtos_power_exit },
	{ "notice of the clock", crtos_clock_init, crtos_clock_exit },
	{ "notice of programs' identities", crtos_identity_init, crtos_identity_exit },
	{ "notice of Linux's end", crtos_last_words_init, crtos_last_words_exit },
	{ "its driver of PCI functions", crtos_pci_init, crtos_pci_exit },
	{ "its driver of platform devices", crtos_platform_init, crtos_platform_exit },
	{ "its network interfaces", crtos_interface_init, crtos_interface_exit },
	{ "/dev/crtos", register_device, deregister_device },
};

static void end_parts(int count)
{
	while (count--)
		parts[count].exit();
}

static int __init crtos_module_init(void)
{
	int i, error;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		error = parts[i].init();
		if (error) {
			pr_err("crtos: [module-init] Linux does not let the module have %s (%pe): end some programs, or look for another crtos.ko (lsmod)\n",
			       parts[i].name, ERR_PTR(error));
			end_parts(i);
			return error;
		}
	}
	return 0;
}

/* While the hypervisor runs it holds the module, so nothing is left here. */
static void __exit crtos_module_exit(void)
{
	end_parts(ARRAY_SIZE(parts));
	rcu_barrier();
	crtos_report_free();
}

module_init(crtos_module_init);
module_exit(crtos_module_exit);

MODULE_DESCRIPTION("Real-time realm beside Linux");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_INFO(interface, __stringify(CRTOS_ABI_VERSION));
