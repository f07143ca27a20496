// SPDX-License-Identifier: GPL-2.0-only
/* The module comes and goes. */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/stringify.h>

#include "crtos.h"
#include "realm.h"

struct crtos_system crtos = {
	.lock = __MUTEX_INITIALIZER(crtos.lock),
};

static int __init crtos_module_init(void)
{
	int error;

	crtos.work = alloc_workqueue("crtos", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!crtos.work)
		return -ENOMEM;
	error = crtos_cpu_init();
	if (error)
		goto out_work;
	error = crtos_doorbell_init();
	if (error)
		goto out_cpu;
	error = crtos_power_init();
	if (error)
		goto out_doorbell;
	error = crtos_clock_init();
	if (error)
		goto out_power;
	error = crtos_identity_init();
	if (error)
		goto out_clock;
	error = crtos_last_words_init();
	if (error)
		goto out_identity;
	error = crtos_pci_init();
	if (error)
		goto out_last_words;
	error = crtos_platform_init();
	if (error)
		goto out_pci;
	error = crtos_interface_init();
	if (error)
		goto out_platform;
	error = misc_register(&crtos_device);
	if (error)
		goto out_interface;
	return 0;

out_interface:
	crtos_interface_exit();
out_platform:
	crtos_platform_exit();
out_pci:
	crtos_pci_exit();
out_last_words:
	crtos_last_words_exit();
out_identity:
	crtos_identity_exit();
out_clock:
	crtos_clock_exit();
out_power:
	crtos_power_exit();
out_doorbell:
	crtos_doorbell_exit();
out_cpu:
	crtos_cpu_exit();
out_work:
	destroy_workqueue(crtos.work);
	return error;
}

/* While the hypervisor runs it holds the module, so nothing is left here. */
static void __exit crtos_module_exit(void)
{
	misc_deregister(&crtos_device);
	crtos_links_release(NULL);
	crtos_interface_exit();
	crtos_platform_exit();
	crtos_pci_exit();
	crtos_last_words_exit();
	crtos_identity_exit();
	crtos_clock_exit();
	crtos_power_exit();
	crtos_doorbell_exit();
	crtos_cpu_exit();
	destroy_workqueue(crtos.work);
	rcu_barrier();
	crtos_report_free();
}

module_init(crtos_module_init);
module_exit(crtos_module_exit);

MODULE_DESCRIPTION("Real-time realm beside Linux");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_INFO(interface, __stringify(CRTOS_ABI_VERSION));
