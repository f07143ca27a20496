// SPDX-License-Identifier: GPL-2.0-only
/*
 * A platform device, crtos-test, of the registers and the interrupt pin of a PCI function that no
 * driver has; and a driver that shows it by UIO, with the rules of uio_pdrv_genirq, which Debian
 * does not have.
 */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/uio_driver.h>

/* Bytes of the registers: a part of a page. */
#define REGISTERS 0x100

static char *function = "";
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "The address of the function");

static ulong neighbour;
module_param(neighbour, ulong, 0444);
MODULE_PARM_DESC(neighbour, "Where on the page another one has 16 bytes");

static struct pci_dev *pci;
static struct platform_device *platform;
static struct resource *other;

struct shown {
	struct uio_info info;
	spinlock_t lock;		/* protects what follows */
	unsigned long disabled;
};

static irqreturn_t handle(int irq, struct uio_info *info)
{
	struct shown *shown = info->priv;

	spin_lock(&shown->lock);
	if (!__test_and_set_bit(0, &shown->disabled))
		disable_irq_nosync(irq);
	spin_unlock(&shown->lock);
	return IRQ_HANDLED;
}

static int control(struct uio_info *info, s32 on)
{
	struct shown *shown = info->priv;
	unsigned long flags;

	spin_lock_irqsave(&shown->lock, flags);
	if (on && __test_and_clear_bit(0, &shown->disabled))
		enable_irq(info->irq);
	else if (!on && !__test_and_set_bit(0, &shown->disabled))
		disable_irq_nosync(info->irq);
	spin_unlock_irqrestore(&shown->lock, flags);
	return 0;
}

static int probe(struct platform_device *dev)
{
	struct resource *registers = platform_get_resource(dev, IORESOURCE_MEM, 0);
	struct shown *shown = devm_kzalloc(&dev->dev, sizeof(*shown), GFP_KERNEL);

	if (!shown)
		return -ENOMEM;
	spin_lock_init(&shown->lock);
	shown->info.name = "crtos-test";
	shown->info.version = "1";
	shown->info.irq = platform_get_irq(dev, 0);
	shown->info.handler = handle;
	shown->info.irqcontrol = control;
	shown->info.priv = shown;
	shown->info.mem[0].memtype = UIO_MEM_PHYS;
	shown->info.mem[0].name = registers->name;
	shown->info.mem[0].addr = registers->start & PAGE_MASK;
	shown->info.mem[0].offs = registers->start & ~PAGE_MASK;
	shown->info.mem[0].size = PAGE_SIZE;
	return devm_uio_register_device(&dev->dev, &shown->info);
}

static struct platform_driver driver = {
	.probe = probe,
	.driver.name = "crtos-test",
};

static int __init platform_init(void)
{
	unsigned int domain, bus, slot, number;
	struct resource resources[2] = {};
	int error = -ENODEV;

	if (sscanf(function, "%x:%x:%x.%x", &domain, &bus, &slot, &number) == 4)
		pci = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, number));
	if (!pci || pci->dev.driver)
		goto out_put;
	error = pci_enable_device(pci);
	if (error)
		goto out_put;
	pci_intx(pci, true);
	resources[0] = (struct resource)DEFINE_RES_MEM_NAMED(pci_resource_start(pci, 0), REGISTERS,
							     "registers");
	resources[1] = (struct resource)DEFINE_RES_IRQ(pci->irq);
	error = -EBUSY;
	if (neighbour) {
		other = request_mem_region(pci_resource_start(pci, 0) + neighbour, 16, "neighbour");
		if (!other)
			goto out_disable;
	}
	error = platform_driver_register(&driver);
	if (error)
		goto out_release;
	platform = platform_device_register_simple("crtos-test", PLATFORM_DEVID_NONE, resources, 2);
	if (!IS_ERR(platform))
		return 0;
	error = PTR_ERR(platform);
	platform_driver_unregister(&driver);
out_release:
	if (other)
		release_mem_region(other->start, 16);
out_disable:
	pci_disable_device(pci);
out_put:
	pci_dev_put(pci);
	return error;
}

static void __exit platform_exit(void)
{
	platform_device_unregister(platform);
	platform_driver_unregister(&driver);
	if (other)
		release_mem_region(other->start, 16);
	pci_disable_device(pci);
	pci_dev_put(pci);
}

module_init(platform_init);
module_exit(platform_exit);

MODULE_DESCRIPTION("A platform device for crtos' tests");
MODULE_LICENSE("GPL");
