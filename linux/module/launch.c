// SPDX-License-Identifier: GPL-2.0-only
/*
 * The launch of the hypervisor underneath the running Linux, and the way back.
 * The steps are those of the image part of the interface.
 */
#include <linux/acpi.h>
#include <linux/cc_platform.h>
#include <linux/cpu.h>
#include <linux/io.h>
#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/smp.h>
#include <asm/special_insns.h>
#include <asm/tsc.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"

/* Page tables of host mode: the last four pages of the first block. */
#define TABLES_SIZE	(4 * PAGE_SIZE)
#define TABLE		(PAGE_SIZE / sizeof(u64))
#define IDENTITY_END	(512ull << 30)

/* In place of the APIC id of a CPU that the machine does not have. */
#define NO_APIC		(~0u)

/* Present, writable, accessed; the leaves also dirty and large. */
#define PTE_TABLE	0x23
#define PTE_LARGE	0xe3

/* In the configuration space of Intel's ICH9: the ports of power management. */
#define POWER_BASE	0x40
#define POWER_MASK	0xff80
/* The watchdog's ports among them. */
#define POWER_TCO	0x60

static struct crtos_blocks blocks;
static struct page *report_pages;

struct launch {
	u64 enter;
	u64 host_cr3;
	s64 result[CRTOS_MAX_CPUS];
	struct crtos_iommu iommus[CRTOS_MAX_IOMMUS];
	bool dma_checked;
};

/* Why a CPU does not take the hypervisor: the code of that (docs/troubleshooting.md), and words. */
struct launch_error {
	const char *code;
	const char *text;
};

static const struct launch_error *launch_error(s64 error)
{
	static const struct launch_error unknown = { "launch-refused", "unknown reason" };
	static const struct launch_error errors[] = {
		[-CRTOS_LAUNCH_NO_VIRTUALIZATION] = { "no-svm",
			"it has no SVM: this needs an AMD processor with virtualization" },
		[-CRTOS_LAUNCH_DISABLED_BY_FIRMWARE] = { "svm-disabled",
			"the firmware disabled SVM: enable it in the firmware's setup" },
		[-CRTOS_LAUNCH_IN_USE] = {
			"other-hypervisor",
			"another hypervisor uses SVM: end its guests and unload it (modprobe -r kvm_amd)",
		},
		[-CRTOS_LAUNCH_NO_NESTED_PAGING] = { "nested-paging",
			"it has no nested paging: this needs a newer processor" },
		[-CRTOS_LAUNCH_VERSION] = { "parts-differ",
			"image and module speak different versions: install both from one build" },
		[-CRTOS_LAUNCH_NO_MEMORY] = { "launch-refused",
			"the hypervisor's memory does not suffice for this machine" },
		[-CRTOS_LAUNCH_BAD_INFO] = {
			"launch-refused",
			"it does not understand this machine: please report that with the hypervisor's log",
		},
		[-CRTOS_LAUNCH_MEMORY_ENCRYPTION] = {
			"memory-encryption",
			"memory encryption is on, which gives all memory a second address: disable SME (SMEE) in the firmware's setup",
		},
	};

	if (error < 0 && -error < ARRAY_SIZE(errors) && errors[-error].text)
		return &errors[-error];
	return &unknown;
}

/* One past the highest address of RAM. */
static u64 memory_end(void)
{
	u64 end = 0;
	int node;

	for_each_online_node(node)
		end = max_t(u64, end, PFN_PHYS(node_end_pfn(node)));
	return end;
}

/*
 * What Linux makes of the machine, and what the tables of host mode need. That memory encryption is
 * on without Linux using it is for the hypervisor, which looks at each CPU.
 */
static int check_machine(struct crtos_file *file)
{
	unsigned long cr4 = __read_cr4();
	u64 supervisor_cet = 0;

	if (boot_cpu_data.x86_vendor == X86_VENDOR_INTEL)
		return crtos_refuse(file, -ENODEV,
				    "[no-svm] this is an Intel processor, and the hypervisor knows only AMD's SVM yet");
	if (!boot_cpu_has(X86_FEATURE_SVM))
		return crtos_refuse(file, -ENODEV,
				    "[no-svm] the processor offers no SVM: use an AMD processor, enable SVM in the firmware's setup, or nested virtualization where this is a virtual machine");
	if (!boot_cpu_has(X86_FEATURE_NPT))
		return crtos_refuse(file, -ENODEV,
				    "[nested-paging] the processor offers no nested paging, which keeps cells apart: use a newer one");
	if (!boot_cpu_has(X86_FEATURE_GBPAGES))
		return crtos_refuse(file, -ENODEV,
				    "[nested-paging] the processor offers no 1 GiB pages, which the hypervisor uses: use a newer one");
	if (cc_platform_has(CC_ATTR_MEM_ENCRYPT))
		return crtos_refuse(file, -ENODEV,
				    "[memory-encryption] memory encryption is on, and the hypervisor would not see what Linux wrote: boot with mem_encrypt=off");
	if (cr4 & X86_CR4_LA57)
		return crtos_refuse(file, -ENODEV,
				    "[page-tables] Linux uses five-level paging, and the hypervisor knows four: boot with no5lvl");
	if (cr4 & BIT(X86_CR4_FRED_BIT))
		return crtos_refuse(file, -ENODEV,
				    "[linux-feature] Linux uses FRED, and the hypervisor does not know it: boot with fred=off");
	if (cr4 & X86_CR4_CET)
		rdmsrq(MSR_IA32_S_CET, supervisor_cet);
	if (supervisor_cet)
		return crtos_refuse(file, -ENODEV,
				    "[linux-feature] Linux's kernel uses control-flow enforcement, and the hypervisor does not know it: boot with ibt=off");
	if (memory_end() > IDENTITY_END)
		return crtos_refuse(file, -ENODEV,
				    "[machine-too-large] RAM ends at %llu GiB, and the hypervisor handles 512 GiB",
				    memory_end() >> 30);
	if (cpumask_last(cpu_present_mask) >= CRTOS_MAX_CPUS)
		return crtos_refuse(file, -ENODEV,
				    "[machine-too-large] this machine has more than %u CPUs, the most that the hypervisor handles",
				    CRTOS_MAX_CPUS);
	return 0;
}

static size_t image_bytes(void)
{
	return crtos_image_end - crtos_image;
}

/* A module that was built with another hypervisor's image is noticed here. */
static int check_image(struct crtos_file *file)
{
	const struct crtos_image_header *header = (const void *)crtos_image;
	size_t bytes = image_bytes();
	u64 end;

	if (bytes < sizeof(*header) || header->magic != CRTOS_IMAGE_MAGIC)
		return crtos_refuse(file, -ENOEXEC,
				    "[part-damaged] the module was built without a hypervisor: build it again");
	if (header->abi_version != CRTOS_ABI_VERSION)
		return crtos_refuse(file, -EPROTO,
				    "[parts-differ] the module's hypervisor speaks version %u of the interface, the module version %u: build both together",
				    header->abi_version, CRTOS_ABI_VERSION);
	end = CRTOS_HYPERVISOR_BASE + header->image_size;
	if (bytes < CRTOS_LAUNCH_INFO_OFFSET + sizeof(struct crtos_launch_info) ||
	    header->image_size < bytes ||
	    header->image_size > CRTOS_LARGE_PAGE_SIZE - TABLES_SIZE ||
	    header->init < CRTOS_HYPERVISOR_BASE || header->init >= end ||
	    header->enter < CRTOS_HYPERVISOR_BASE || header->enter >= end)
		return crtos_refuse(file, -ENOEXEC,
				    "[part-damaged] the module's hypervisor contradicts itself: build the module again");
	return 0;
}

/*
 * Refuses unless the launch reaches every CPU: one that stays outside could be started there,
 * by an NMI for example, and would have all memory. Hotplug is locked.
 */
static int check_cpus(struct crtos_file *file, u32 cpu_count)
{
	if (cpumask_last(cpu_present_mask) + 1 != cpu_count ||
	    !cpumask_subset(cpu_present_mask, cpu_online_mask))
		return crtos_refuse(file, -EBUSY,
				    "[cpus-changed] a CPU went offline or was added meanwhile, so the hypervisor does not reach it: try again");
	return crtos_check_listed(file);
}

/*
 * Blocks for each IOMMU: two for its interrupts and its table of devices, the others for copies of
 * the tables by which Linux's devices translate. One more has room for CRTOS_MAX_DEVICE_TABLES.
 */
#define IOMMU_BLOCKS 4

static int take_memory(struct crtos_file *file, u32 cpu_count, u32 iommus)
{
	u64 count = 3 + cpu_count / 32 + IOMMU_BLOCKS * iommus;

	if (!report_pages) {
		report_pages = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN,
					   get_order(CRTOS_REPORT_SIZE));
		if (!report_pages)
			return crtos_refuse(file, -ENOMEM,
					    "[memory-fragmented] no 256 KiB in one piece for the hypervisor's report: end some programs");
	}
	if (crtos_blocks_take(&blocks, count * CRTOS_LARGE_PAGE_SIZE)) {
		crtos_refuse(file, -ENOMEM,
			     "[memory-fragmented] %llu MiB in blocks of 2 MiB are needed for the hypervisor, and %llu MiB could be had: end some programs",
			     2 * count, 2 * blocks.count);
		crtos_blocks_return(&blocks);
		return -ENOMEM;
	}
	return 0;
}

/**
 * crtos_report_free() - free the report when the module is unloaded
 */
void crtos_report_free(void)
{
	if (report_pages)
		__free_pages(report_pages, get_order(CRTOS_REPORT_SIZE));
}

/*
 * Linux's upper half, the first 512 GiB at 0, the blocks at their address.
 * Returns the physical address of the tables.
 */
static u64 build_tables(u8 *first_block)
{
	u64 *pml4 = (u64 *)(first_block + CRTOS_LARGE_PAGE_SIZE - TABLES_SIZE);
	u64 *identity = pml4 + TABLE, *high = identity + TABLE, *image = high + TABLE;
	u64 *linux_pml4 = __va(__read_cr3() & CR3_ADDR_MASK);
	u64 base = CRTOS_HYPERVISOR_BASE;
	int i;

	memcpy(pml4 + TABLE / 2, linux_pml4 + TABLE / 2, PAGE_SIZE / 2);
	pml4[0] = __pa(identity) | PTE_TABLE;
	for (i = 0; i < TABLE; i++)
		identity[i] = (u64)i << 30 | PTE_LARGE;
	pml4[(base >> 39) % TABLE] = __pa(high) | PTE_TABLE;
	high[(base >> 30) % TABLE] = __pa(image) | PTE_TABLE;
	for (i = 0; i < blocks.count; i++)
		image[(base >> 21) % TABLE + i] = page_to_phys(blocks.page[i]) | PTE_LARGE;
	return __pa(pml4);
}

/* The I/O port of a register, or 0 if it is none. */
static u32 port_of(const struct acpi_generic_address *address)
{
	return address->space_id == ACPI_ADR_SPACE_SYSTEM_IO && address->address <= U16_MAX ?
		address->address : 0;
}

/* The port of the second byte of a register. */
static u32 second_byte(const struct acpi_generic_address *address)
{
	u32 port = port_of(address);

	return port ? port + 1 : 0;
}

/* Ports by which software resets the machine; the hypervisor knows the others. */
static void fill_resets(struct crtos_launch_info *info)
{
	const struct acpi_table_fadt *fadt = &acpi_gbl_FADT;

	if (acpi_disabled)
		return;
	info->smi_port = fadt->smi_command;
	if (fadt->flags & ACPI_FADT_RESET_REGISTER) {
		info->reset_port = port_of(&fadt->reset_register);
		info->reset_value = fadt->reset_value;
	}
	info->sleep_ports[0] = second_byte(&fadt->xpm1a_control_block);
	info->sleep_ports[1] = second_byte(&fadt->xpm1b_control_block);
	info->sleep_ports[2] = port_of(&fadt->sleep_control);
}

/*
 * The watchdog (TCO) of the one chipset by Intel beside which this can run: that of
 * virtual machines. In those by AMD it is not behind ports.
 */
static void fill_watchdog(struct crtos_launch_info *info)
{
	struct pci_dev *bridge = pci_get_device(PCI_VENDOR_ID_INTEL, PCI_DEVICE_ID_INTEL_ICH9_8,
						NULL);
	u32 base = 0;

	if (bridge && !pci_read_config_dword(bridge, POWER_BASE, &base) && base & POWER_MASK) {
		info->watchdog_port = (base & POWER_MASK) + POWER_TCO;
		info->watchdog_ports = CRTOS_MAX_WATCHDOG_PORTS;
	}
	pci_dev_put(bridge);
}

static void fill_info(struct crtos_launch_info *info, u64 host_cr3, u32 cpu_count)
{
	u32 i;

	info->host_cr3 = host_cr3;
	info->leave_trampoline = (u64)crtos_leave_trampoline;
	info->report_address = page_to_phys(report_pages);
	info->memory_end = memory_end();
	info->tsc_khz = tsc_khz;
	info->x2apic = x2apic_enabled();
	info->cpu_count = cpu_count;
	info->block_count = blocks.count;
	fill_resets(info);
	fill_watchdog(info);
	for (i = 0; i < blocks.count; i++)
		info->blocks[i] = page_to_phys(blocks.page[i]);
	for (i = 0; i < info->cpu_count; i++)
		info->apic_ids[i] = cpu_present(i) ? per_cpu(x86_cpu_to_apicid, i) : NO_APIC;
}

static void enter_this_cpu(void *data)
{
	struct launch *launch = data;
	unsigned int cpu = smp_processor_id();
	unsigned long flags;

	local_irq_save(flags);
	launch->result[cpu] = crtos_enter(cpu, launch->enter, launch->host_cr3);
	local_irq_restore(flags);
}

static void leave_this_cpu(void *data)
{
	atomic_t *failed = data;
	unsigned long flags;
	s64 result;

	local_irq_save(flags);
	result = crtos_leave();
	local_irq_restore(flags);
	if (result)
		atomic_inc(failed);
	else
		cpumask_clear_cpu(smp_processor_id(), &crtos.held);
}

/*
 * Leaves on every online CPU that is held; hotplug is locked. If a CPU does not leave,
 * the hypervisor keeps its memory for ever.
 */
static int leave_all(void)
{
	atomic_t failed = ATOMIC_INIT(0);

	on_each_cpu_mask(&crtos.held, leave_this_cpu, &failed, true);
	if (!cpumask_empty(&crtos.held)) {
		pr_err("crtos: the hypervisor did not leave CPUs %*pbl; only a reboot helps\n",
		       cpumask_pr_args(&crtos.held));
		return -EIO;
	}
	return 0;
}

/* Launches on all online CPUs at once, or on none. Hotplug is locked. */
static int launch_all(struct crtos_file *file, struct launch *launch, u64 init)
{
	unsigned long flags;
	unsigned int cpu, bad = nr_cpu_ids;
	const struct launch_error *error;
	s64 result;

	local_irq_save(flags);
	result = crtos_host_call(init, launch->host_cr3);
	local_irq_restore(flags);
	if (result) {
		error = launch_error(result);
		return crtos_refuse(file, -ENODEV, "[%s] the hypervisor refuses this machine: %s",
				    error->code, error->text);
	}

	on_each_cpu(enter_this_cpu, launch, true);
	for_each_online_cpu(cpu) {
		if (!launch->result[cpu])
			cpumask_set_cpu(cpu, &crtos.held);
		else if (bad == nr_cpu_ids)
			bad = cpu;
	}
	if (bad < nr_cpu_ids) {
		error = launch_error(launch->result[bad]);
		crtos_refuse(file, -ENODEV, "[%s] CPU %u does not take the hypervisor: %s",
			     error->code, bad, error->text);
		return leave_all() ?: -ENODEV;
	}
	return 0;
}

/* Launches on CPUs that are all online. @launch has room for the results. */
static int launch_online(struct crtos_file *file, struct launch *launch, u32 cpu_count)
{
	const struct crtos_image_header *header = (const void *)crtos_image;
	u8 *base = page_address(blocks.page[0]);
	struct crtos_launch_info *info = (void *)(base + CRTOS_LAUNCH_INFO_OFFSET);
	int error;

	cpus_read_lock();
	error = check_cpus(file, cpu_count);
	if (!error) {
		launch->host_cr3 = build_tables(base);
		launch->enter = header->enter;
		fill_info(info, launch->host_cr3, cpu_count);
		memcpy(info->iommus, launch->iommus, sizeof(info->iommus));
		info->dma_checked = launch->dma_checked;
		error = crtos_list_io_apics(file, info->io_apics) ?:
			crtos_list_hpets(file, info->hpets) ?:
			crtos_list_configurations(file, launch->iommus, info);
	}
	if (!error)
		error = launch_all(file, launch, header->init);
	if (!error)
		/* Read by prepare_cpu() with hotplug locked, and by on_sleep(). */
		WRITE_ONCE(crtos.enabled, true);
	cpus_read_unlock();
	return error;
}

static int launch_image(struct crtos_file *file, bool dma_checked)
{
	static struct cpumask woken;	/* under crtos.lock */
	u32 cpu_count = cpumask_last(cpu_present_mask) + 1;
	struct launch *launch;
	int error;

	launch = kzalloc(sizeof(*launch), GFP_KERNEL);
	if (!launch)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	launch->dma_checked = dma_checked;
	error = crtos_list_iommus(file, launch->iommus);
	if (error >= 0)
		error = take_memory(file, cpu_count, error);
	if (error) {
		kfree(launch);
		return error;
	}
	memset(page_address(report_pages), 0, CRTOS_REPORT_SIZE);
	/* Read without the lock by get_report(): all of it is the hypervisor's to change. */
	WRITE_ONCE(crtos.report, page_address(report_pages));
	memcpy(page_address(blocks.page[0]), crtos_image, image_bytes());

	error = crtos_cpus_wake(file, cpu_present_mask, &woken);
	if (!error)
		error = launch_online(file, launch, cpu_count);
	crtos_cpus_sleep(&woken);
	kfree(launch);
	if (error && cpumask_empty(&crtos.held))
		crtos_blocks_return(&blocks);
	return error;
}

static int check_launch(struct crtos_file *file)
{
	s64 version = crtos_hypercall(CRTOS_HC_VERSION, 0, 0, 0, 0);

	if (version != CRTOS_ABI_VERSION)
		return crtos_refuse(file, -EPROTO,
				    "[parts-differ] the hypervisor answers with version %lld instead of %u: install crtos again",
				    version, CRTOS_ABI_VERSION);
	return 0;
}

/* Leaves; all CPUs that are held come online for that. */
static int leave_hypervisor(struct crtos_file *file)
{
	static struct cpumask woken;	/* under crtos.lock */
	int error;

	error = crtos_cpus_wake(file, &crtos.held, &woken);
	if (error)
		return error;
	cpus_read_lock();
	if (!cpumask_subset(&crtos.held, cpu_online_mask))
		error = crtos_refuse(file, -EBUSY,
				     "[cpus-changed] a CPU went offline meanwhile, so the hypervisor cannot leave it: try again");
	if (!error && leave_all())
		error = crtos_refuse(file, -EIO, "[reboot-needed] the hypervisor does not leave: see its log");
	if (!error)
		/* As in launch_image(). */
		WRITE_ONCE(crtos.enabled, false);
	cpus_read_unlock();
	crtos_cpus_sleep(&woken);
	if (error)
		return error;
	crtos_blocks_show(&blocks);
	crtos_blocks_return(&blocks);
	return 0;
}

/**
 * crtos_enable() - CRTOS_IOC_ENABLE: launch the hypervisor
 * @file: the file that undoes it at release
 * @flags: 0 or %CRTOS_ENABLE_CHECKED_DMA
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_enable(struct crtos_file *file, unsigned long flags)
{
	int error;

	if (flags & ~CRTOS_ENABLE_CHECKED_DMA)
		return crtos_refuse(file, -EINVAL, "[bad-call] unknown flags");

	if (crtos.enabled)
		return crtos_refuse(file, -EALREADY, "[already-up] the hypervisor runs already");
	if (!cpumask_empty(&crtos.held))
		return crtos_refuse(file, -EIO,
				    "[reboot-needed] the hypervisor could not leave some CPUs earlier: reboot");
	error = check_machine(file);
	if (error)
		return error;
	error = check_image(file);
	if (error)
		return error;
	/* It stays while the hypervisor holds a CPU, also after a launch that failed. */
	__module_get(THIS_MODULE);
	error = launch_image(file, flags & CRTOS_ENABLE_CHECKED_DMA);
	if (!error) {
		crtos_blocks_hide(&blocks);
		error = check_launch(file);
		if (error)
			leave_hypervisor(NULL);
	}
	if (error) {
		if (cpumask_empty(&crtos.held))
			module_put(THIS_MODULE);
		return error;
	}
	crtos.owner = file;
	file->owns = true;
	pr_info("crtos: the hypervisor runs underneath CPUs %*pbl\n",
		cpumask_pr_args(&crtos.held));
	return 0;
}

/**
 * crtos_disable() - CRTOS_IOC_DISABLE: leave the hypervisor
 * @file: where a failure is explained; NULL: in the log
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_disable(struct crtos_file *file)
{
	int i, error;

	if (!crtos.enabled)
		return crtos_refuse(file, -ENODEV, "[not-up] the hypervisor does not run");
	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i])
			return crtos_refuse(file, -EBUSY,
					    "[cell-state] cell '%s' exists: destroy it first",
					    crtos.cells[i]->name);
	error = leave_hypervisor(file);
	if (error)
		return error;
	crtos.owner = NULL;
	pr_info("crtos: the hypervisor left\n");
	module_put(THIS_MODULE);
	return 0;
}
