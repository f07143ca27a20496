/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The machine as the module sees it: cells, what they got from Linux, the device.
 *
 * All locks of the module, with their order: docs/locking.md.
 */
#ifndef CRTOS_H
#define CRTOS_H

#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "abi.h"

struct crtos_process;
struct pci_dev;

/* One opening of the device. */
struct crtos_file {
	struct mutex lock;			/* that it becomes one process at most */
	struct crtos_process *process;		/* set once; see crtos_file_process() */
	struct crtos_thread *heir_of;		/* see crtos_thread_bequeath(); under realm_lock */
	bool owns;				/* cells or the launch, perhaps; under crtos.lock */
	u32 traces;				/* what is traced for it; under realm_lock */
	spinlock_t reason_lock;			/* protects reason */
	char reason[sizeof_field(struct crtos_reason, text)];
};

/* Memory in blocks of 2 MiB, wherever they lie. */
struct crtos_blocks {
	struct page **page;
	u64 count;
};

/* Where a cell rings in Linux. Under doorbell_lock. */
struct crtos_doorbell {
	struct list_head link;			/* among those that are open */
	u32 cell;
	bool open;
	bool everywhere;			/* rings on any CPU of Linux, not at home alone */
	unsigned int wanted;			/* the CPU that was asked for */
	unsigned int home;			/* where it rings for all else: mostly wanted */
	int irq[CRTOS_MAX_CPUS];		/* of each CPU on which it rings, or 0 */
};

/* A cell beside the root cell. Under crtos.lock. */
struct crtos_cell {
	u32 number;
	char name[CRTOS_CELL_NAME_LEN + 1];
	struct crtos_file *owner;		/* undoes it at release; NULL when kept */
	u32 cpu_count;
	u32 cpus[CRTOS_MAX_CELL_CPUS];		/* Linux's numbers, ascending */
	struct crtos_doorbell doorbell;
	struct crtos_blocks private;
	struct crtos_blocks channel;		/* one block */
	struct crtos_blocks pool;
	struct resource *ports[CRTOS_MAX_PORT_RANGES];	/* that no driver of Linux gets */
	bool realm;				/* runs the real-time kernel */
	bool created;				/* the hypervisor knows it */
	bool mapped;				/* and gave it all its memory */
};

/* The machine. */
struct crtos_system {
	struct mutex lock;			/* serialises what changes it; protects the rest */
	bool enabled;				/* read without the lock by hotplug and sleep */
	struct crtos_file *owner;		/* undoes the launch at release; NULL when kept */
	struct cpumask held;			/* CPUs that the hypervisor holds */
	struct cpumask cell_cpus;		/* those of them that cells have */
	struct crtos_cell *cells[CRTOS_MAX_CELLS];
	struct crtos_report *report;		/* stays when the hypervisor leaves */
	struct workqueue_struct *work;		/* from load to unload of the module */
};

extern struct crtos_system crtos;

/* device.c */
extern struct miscdevice crtos_device;
int __printf(3, 4) crtos_refuse(struct crtos_file *file, int error,
				const char *format, ...);
int crtos_refuse_hv(struct crtos_file *file, s64 result, const char *what);

/* launch.c */
int crtos_enable(struct crtos_file *file, unsigned long flags);
int crtos_disable(struct crtos_file *file);
void crtos_report_free(void);

/* image.S */
extern const u8 crtos_image[];
extern const u8 crtos_image_end[];

/* trampoline.S */
asmlinkage s64 crtos_host_call(u64 function, u64 host_cr3);
asmlinkage s64 crtos_enter(u64 cpu, u64 entry, u64 host_cr3);
asmlinkage s64 crtos_leave(void);
extern const char crtos_leave_trampoline[];

/* blocks.c */
int crtos_blocks_take(struct crtos_blocks *blocks, u64 bytes);
void crtos_blocks_return(struct crtos_blocks *blocks);
void crtos_blocks_hide(struct crtos_blocks *blocks);
void crtos_blocks_show(struct crtos_blocks *blocks);
void crtos_blocks_share(struct crtos_blocks *blocks);
void crtos_blocks_return_shared(struct crtos_blocks *blocks);

/* cpu.c */
int crtos_cpu_init(void);
void crtos_cpu_exit(void);
int crtos_cpus_take(struct crtos_file *file, struct crtos_cell *cell,
		    const struct cpumask *wanted);
void crtos_cpus_return(struct crtos_cell *cell);
int crtos_cpus_wake(struct crtos_file *file, const struct cpumask *among, struct cpumask *woken);
void crtos_cpus_sleep(const struct cpumask *woken);

/* madt.c */
int crtos_check_listed(struct crtos_file *file);
int crtos_list_io_apics(struct crtos_file *file, u64 *pages);
int crtos_find_io_apic(unsigned int index, u8 *id, u32 *first);

/* hpet.c */
int crtos_list_hpets(struct crtos_file *file, u64 *pages);

/* iommus.c */
int crtos_list_iommus(struct crtos_file *file, struct crtos_iommu *iommus);
int crtos_find_requester(u8 io_apic);

/* mcfg.c */
int crtos_list_configurations(struct crtos_file *file, const struct crtos_iommu *iommus,
			      struct crtos_launch_info *info);

/* dmar.c */
int crtos_read_dmar(const void *entry, size_t length, struct crtos_iommu *iommu);
int crtos_find_in_dmar(const void *entry, size_t length, u8 io_apic);

/* ivrs.c */
int crtos_read_ivrs(const void *entry, size_t length, struct crtos_iommu *iommu);
int crtos_find_in_ivrs(const void *entry, size_t length, u8 io_apic);

/* cell.c */
struct crtos_cell *crtos_cell_find(struct crtos_file *file, u32 number);
int crtos_cell_renew(struct crtos_file *file, struct crtos_cell *cell);
int crtos_cell_create(struct crtos_file *file, struct crtos_create_cell __user *user);
int crtos_cell_start(struct crtos_file *file, struct crtos_start_cell __user *user);
int crtos_cell_stop(struct crtos_file *file, u32 number);
int crtos_cell_lock(struct crtos_file *file, u32 number);
int crtos_cell_seal(struct crtos_file *file, u32 number);
int crtos_cell_destroy(struct crtos_file *file, u32 number, bool force);
int crtos_cell_doorbell(struct crtos_file *file, u32 number, u32 index);
void crtos_cells_release(struct crtos_file *file);
u32 crtos_cell_mask(void);
u32 crtos_cell_state(const struct crtos_cell *cell);
bool crtos_cell_locked(const struct crtos_cell *cell);
bool crtos_any_locked(void);

/* devices.c */
int crtos_device_add(struct crtos_file *file, const struct crtos_cell_device __user *user);
int crtos_device_remove(struct crtos_file *file, const struct crtos_cell_device __user *user);
void crtos_device_return(struct device *device);
int crtos_devices_return(struct crtos_file *file, u32 cell);
int crtos_interface_show(struct crtos_file *file, const struct crtos_cell_interface __user *user);

/* pci.c */
int crtos_pci_init(void);
void crtos_pci_exit(void);
int crtos_function_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name,
		       u32 flags);
int crtos_function_remove(struct crtos_file *file, u32 cell, const char *name);
int crtos_functions_return(struct crtos_file *file, u32 cell);
int crtos_function_show(struct crtos_file *file, const struct crtos_cell_interface *argument);

/* platform.c */
int crtos_platform_init(void);
void crtos_platform_exit(void);
int crtos_platform_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name);
int crtos_platform_remove(struct crtos_file *file, u32 cell, const char *name);
int crtos_platforms_return(struct crtos_file *file, u32 cell);
int crtos_platform_number(void);

/* window.c: under crtos.lock */
struct crtos_window {
	struct list_head link;			/* among those of all cells */
	u32 cell;
	struct crtos_device_memory memory[CRTOS_BASE_ADDRESSES];
};

void crtos_window_add(struct crtos_window *window, u32 cell);
void crtos_window_remove(struct crtos_window *window);
bool crtos_window_place(struct crtos_window *window, int i, u64 physical, u64 size, u64 alignment);

/* quiesce.c */
void crtos_quiesce(struct pci_dev *dev);

/* line.c */
int crtos_line_give(struct crtos_file *file, u32 cell, unsigned int line, void *owner);
void crtos_line_take_back(u32 cell, unsigned int line, void *owner);

/* ports.c */
int crtos_ports_reserve(struct crtos_file *file, struct crtos_cell *cell,
			const struct crtos_create_cell *create);
void crtos_ports_return(struct crtos_cell *cell);
int crtos_ports_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name);
int crtos_described_add(struct crtos_file *file, const struct crtos_cell *cell,
			const char *description, bool interrupts);
int crtos_ports_remove(struct crtos_file *file, u32 cell, const char *name, bool described);
int crtos_ports_return_added(struct crtos_file *file, u32 cell);
bool crtos_ports_have(u16 number);

/* uio.c */
struct crtos_uio;
int crtos_uio_register(struct crtos_file *file, struct device *dev,
		       const struct resource *resource, int count, struct crtos_uio **registered);
void crtos_uio_unregister(struct crtos_uio *uio);
dev_t crtos_uio_number(const struct crtos_uio *uio);

/* interface.c */
struct crtos_interface;
int crtos_interface_init(void);
void crtos_interface_exit(void);
int crtos_interface_register(struct crtos_file *file, struct device *card,
			     const struct crtos_cell_interface *argument,
			     struct crtos_interface **registered);
void crtos_interface_unregister(struct crtos_interface *interface);

/* link.c */
void crtos_links_doorbell(void);
void crtos_links_stopped(const struct crtos_cell *cell);
int crtos_links_map(struct crtos_file *file, const struct crtos_cell *cell);
void crtos_links_leave(const struct crtos_cell *cell);
void crtos_links_keep(const struct crtos_file *file);
void crtos_links_release(const struct crtos_file *file);
int crtos_link_create(struct crtos_file *file, struct crtos_link __user *user);
int crtos_link_destroy(struct crtos_file *file, struct crtos_link __user *user);
int crtos_link_join(struct crtos_file *file, struct crtos_link_join __user *user);
int crtos_link_info(struct crtos_link __user *user);

/* ethernet.c */
int crtos_ethernet_add(struct crtos_file *file, struct crtos_cell_ethernet __user *user);

/* vfio.c */
struct crtos_vfio;
bool crtos_vfio_has(const struct pci_dev *dev);
int crtos_vfio_claim(struct crtos_file *file, struct pci_dev *dev, bool shared,
		     void (*lose)(struct pci_dev *dev, void *data), void *data,
		     struct crtos_vfio **claimed);
void crtos_vfio_release(struct crtos_vfio *vfio);
dev_t crtos_vfio_number(const struct crtos_vfio *vfio);
u32 crtos_vfio_group(const struct crtos_vfio *vfio);

/* transfer.c */
int crtos_cell_load(struct crtos_file *file, struct crtos_load_cell __user *user);
int crtos_cell_read(struct crtos_file *file, struct crtos_transfer __user *user);
int crtos_cell_write(struct crtos_file *file, struct crtos_transfer __user *user);

/* power.c */
int crtos_power_init(void);
void crtos_power_exit(void);

/* doorbell.c */
int crtos_doorbell_init(void);
void crtos_doorbell_exit(void);
int crtos_doorbell_open(struct crtos_file *file, struct crtos_doorbell *doorbell,
			u32 cell, unsigned int cpu, bool everywhere);
void crtos_doorbell_close(struct crtos_doorbell *doorbell);
bool crtos_doorbell_wanted(unsigned int cpu);

#endif /* CRTOS_H */
