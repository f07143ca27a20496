/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that crtos.ko builds for (6.1 to 7.3), and
 * nothing else.
 */
#ifndef CRTOS_COMPAT_H
#define CRTOS_COMPAT_H

#include <linux/fsnotify_backend.h>
#include <linux/irq.h>
#include <linux/kernfs.h>
#include <linux/kmsg_dump.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/version.h>

#include <asm/msr.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#include <linux/pfn_t.h>
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_mod(struct vm_area_struct *vma,
				unsigned long set, unsigned long clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

/* The mark of a group on an inode, with a reference, or NULL. */
static inline struct fsnotify_mark *crtos_find_inode_mark(struct inode *inode,
							  struct fsnotify_group *group)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	return fsnotify_find_mark(&inode->i_fsnotify_marks, group);
#else
	return fsnotify_find_inode_mark(inode, group);
#endif
}

/* Counts an interrupt in /proc/interrupts. */
static inline void crtos_count_interrupt(struct irq_desc *desc)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	__this_cpu_inc(*desc->kstat_irqs);
#else
	__this_cpu_inc(desc->kstat_irqs->cnt);
#endif
}

/* What the driver of a platform device returns when it has let that go. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define crtos_remove_result	int
#define crtos_removed	0
#else
#define crtos_remove_result	void
#define crtos_removed
#endif

/* What a kmsg dumper is told, and why it is called. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define crtos_dump_detail	enum kmsg_dump_reason
#define crtos_dump_reason(detail)	(detail)
#else
#define crtos_dump_detail	struct kmsg_dump_detail *
#define crtos_dump_reason(detail)	((detail)->reason)
#endif

/* Has a network interface stay in its namespace. */
static inline void crtos_keep_namespace(struct net_device *dev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
	dev->features |= NETIF_F_NETNS_LOCAL;
#elif defined(CRTOS_NETNS_IMMUTABLE)
	dev->netns_immutable = true;
#else
	dev->netns_local = true;
#endif
}

/* The folder of a file of sysfs, to compare it. */
static inline const struct kernfs_node *crtos_folder_of(const struct kernfs_node *node)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
	return node->parent;
#else
	return rcu_access_pointer(node->__parent);
#endif
}

/* Reads a model-specific register. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define rdmsrq	rdmsrl
#endif

/* Maps a page without a word to its file. */
static inline vm_fault_t crtos_insert_page(struct vm_fault *vmf, struct page *page)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	return vmf_insert_mixed(vmf->vma, vmf->address, page_to_pfn_t(page));
#else
	return vmf_insert_mixed(vmf->vma, vmf->address, page_to_pfn(page));
#endif
}

/* What the driver of a UIO device is asked when somebody maps it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 2, 0)
#define crtos_uio_mmap	mmap
#define crtos_uio_mapping	struct vm_area_struct
#else
#define crtos_uio_mmap	mmap_prepare
#define crtos_uio_mapping	struct vm_area_desc
#endif

/* Flexible return and event delivery replaces the IDT; unknown to old headers. */
#ifndef X86_CR4_FRED_BIT
#define X86_CR4_FRED_BIT	32
#endif

#ifndef MSR_IA32_S_CET
#define MSR_IA32_S_CET		0x6a2
#endif

#ifndef X86_CR4_CET
#define X86_CR4_CET		BIT(23)
#endif

#endif /* CRTOS_COMPAT_H */
