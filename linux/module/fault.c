// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a rich real-time process in its shadow: a mapping of the device
 * over the program's address range, filled on fault with the very pages of the
 * realm's pool that back the addresses there.
 *
 * The real-time kernel decides which page that is. It is asked only by a shadow
 * thread that executes a request: nobody else has a thread in the realm that
 * could answer. Others see what is mapped, and SIGBUS (EFAULT) elsewhere.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched.h>

#include "compat.h"
#include "crtos.h"
#include "realm.h"

#define ADDRESS_BITS	47
#define ADDRESS_MASK	(BIT_ULL(ADDRESS_BITS) - 1)

/* Tag of an entry in process->pages: Linux may write to the page. */
#define WRITABLE	1

static u64 fault_address(struct vm_fault *vmf)
{
	return ((u64)vmf->pgoff << PAGE_SHIFT) & ADDRESS_MASK;
}

/**
 * crtos_pool_page() - a page of the pool
 * @realm: the realm
 * @offset: where it lies in the pool, below its size
 *
 * Context: Any.
 * Return: the page.
 */
struct page *crtos_pool_page(struct crtos_realm *realm, u64 offset)
{
	struct page *block = realm->cell->pool.page[offset / CRTOS_LARGE_PAGE_SIZE];

	return block + offset % CRTOS_LARGE_PAGE_SIZE / PAGE_SIZE;
}

/* What the kernel has at an address. */
struct found {
	struct page *page;	/* of the pool; or of Linux, with a reference, or NULL if it went */
	bool at_place;		/* it is Linux's, at a place of the share window */
	bool writable;
};

/* Asks the real-time kernel and waits. Returns 0 or VM_FAULT_*. */
static vm_fault_t ask(struct crtos_process *process, u64 address, bool write,
		      struct found *found)
{
	struct crtos_answer checked;

	struct crtos_realm *realm = process->realm;
	struct crtos_thread *thread = crtos_thread_current(process);
	u64 answer;

	if (!thread || !thread->busy || thread->asking)
		return VM_FAULT_SIGBUS;
	/* It stays set if the wait fails: then the slot is the kernel's for good. */
	thread->asking = true;
	if (crtos_channel_ask(realm->channel, thread->slot, address, write))
		crtos_realm_ring(realm, thread->slot);
	do {
		if (crtos_thread_wait(thread, TASK_KILLABLE, CRTOS_SLOT_ANSWER))
			return VM_FAULT_SIGBUS;
	} while (!crtos_channel_take_answer(realm->channel, thread->slot, &answer));
	thread->asking = false;
	if (!crtos_channel_check_answer(answer, realm->cell->pool.count * CRTOS_LARGE_PAGE_SIZE,
					write, &checked))
		return VM_FAULT_SIGSEGV;
	found->at_place = checked.at_place;
	found->writable = checked.writable;
	found->page = checked.at_place ? crtos_place_page(realm, checked.place) :
		      crtos_pool_page(realm, checked.offset);
	return 0;
}

static u64 revocations_begun(struct crtos_process *process)
{
	u64 count;

	xa_lock(&process->pages);
	count = process->revocations_begun;
	xa_unlock(&process->pages);
	return count;
}

/*
 * Notes down that Linux has the page. The caller holds the page's lock until it is
 * mapped, so that whoever revokes it finds it noted or waits (revocation.c). Returns
 * VM_FAULT_NOPAGE if a revocation began since @begun: then the kernel is asked again.
 */
static vm_fault_t record(struct crtos_process *process, u64 address, struct page *page,
			 bool writable, u64 begun)
{
	unsigned long index = address >> PAGE_SHIFT;
	vm_fault_t result = 0;

	if (xa_reserve(&process->pages, index, GFP_KERNEL))
		return VM_FAULT_OOM;
	xa_lock(&process->pages);
	if (process->revocations_begun != begun)
		result = VM_FAULT_NOPAGE;
	else if (xa_is_err(__xa_store(&process->pages, index,
				      xa_tag_pointer(page, writable ? WRITABLE : 0), 0)))
		result = VM_FAULT_OOM;
	xa_unlock(&process->pages);
	if (result)
		xa_release(&process->pages, index);
	return result;
}

static void unmap_page(struct crtos_process *process, struct vm_fault *vmf)
{
	unmap_mapping_range(crtos_process_mapping(process), (loff_t)vmf->pgoff << PAGE_SHIFT,
			    PAGE_SIZE, 1);
}

/*
 * Maps a page of Linux at an address of the program, without a word to its file: that would
 * not find it here. Whoever revokes the address unmaps it, or it is seen here that a revocation
 * began since @begun. The realm has the place until that is done, and so the page stays.
 * Gives the reference to the page back.
 */
static vm_fault_t map_place(struct crtos_process *process, struct vm_fault *vmf,
			    struct page *page, u64 begun)
{
	vm_fault_t result;

	if (!page)
		return VM_FAULT_NOPAGE;
	result = crtos_insert_page(vmf, page);
	if (revocations_begun(process) != begun)
		unmap_page(process, vmf);
	put_page(page);
	return result;
}

static vm_fault_t shadow_fault(struct vm_fault *vmf)
{
	struct crtos_process *process = vmf->vma->vm_private_data;
	u64 address = fault_address(vmf), begun = revocations_begun(process);
	struct found found;
	struct page *page;
	vm_fault_t result;

	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	result = ask(process, address, vmf->flags & FAULT_FLAG_WRITE, &found);
	if (result)
		return result;
	if (found.at_place)
		return map_place(process, vmf, found.page, begun);
	page = found.page;
	get_page(page);
	lock_page(page);
	result = record(process, address, page, found.writable, begun);
	if (result) {
		unlock_page(page);
		put_page(page);
		return result;
	}
	vmf->page = page;
	return VM_FAULT_LOCKED;
}

static bool may_write(struct crtos_process *process, u64 address, struct page *page)
{
	return xa_load(&process->pages, address >> PAGE_SHIFT) == xa_tag_pointer(page, WRITABLE);
}

/*
 * Before a page becomes writable. The kernel may have allowed that in the answer
 * that brought the page; otherwise it is asked, and may answer with a copy.
 * Returns with the page locked: it has no file mapping, by which Linux would
 * otherwise recognise that it was truncated.
 */
static vm_fault_t shadow_mkwrite(struct vm_fault *vmf)
{
	struct crtos_process *process = vmf->vma->vm_private_data;
	u64 address = fault_address(vmf), begun = revocations_begun(process);
	struct found found;
	vm_fault_t result;

	lock_page(vmf->page);
	if (may_write(process, address, vmf->page))
		return VM_FAULT_LOCKED;
	unlock_page(vmf->page);

	result = ask(process, address, true, &found);
	if (result)
		return result;
	if (found.at_place && found.page)
		put_page(found.page);
	if (found.page != vmf->page) {
		unmap_page(process, vmf);
		return VM_FAULT_NOPAGE;
	}
	lock_page(vmf->page);
	result = record(process, address, vmf->page, true, begun);
	if (result) {
		unlock_page(vmf->page);
		return result;
	}
	return VM_FAULT_LOCKED;
}

/*
 * The same for a page of Linux at a place. If the mapping goes meanwhile, so does what was
 * found writable: Linux looks again whether it is the same.
 */
static vm_fault_t shadow_pfn_mkwrite(struct vm_fault *vmf)
{
	struct crtos_process *process = vmf->vma->vm_private_data;
	vm_fault_t result;
	struct found found;
	bool same;

	result = ask(process, fault_address(vmf), true, &found);
	if (result)
		return result;
	same = found.at_place && found.page && page_to_pfn(found.page) == pte_pfn(vmf->orig_pte);
	if (found.at_place && found.page)
		put_page(found.page);
	if (same)
		return 0;
	unmap_page(process, vmf);
	return VM_FAULT_NOPAGE;
}

static void shadow_open(struct vm_area_struct *vma)
{
	struct crtos_process *process = vma->vm_private_data;

	atomic_inc(&process->mappings);
}

static void shadow_close(struct vm_area_struct *vma)
{
	struct crtos_process *process = vma->vm_private_data;

	if (atomic_dec_and_test(&process->mappings))
		crtos_process_over(process);
}

static const struct vm_operations_struct shadow_vm_ops = {
	.open = shadow_open,
	.close = shadow_close,
	.fault = shadow_fault,
	.page_mkwrite = shadow_mkwrite,
	.pfn_mkwrite = shadow_pfn_mkwrite,
};

/* May the program have memory there? */
static bool program_range(u64 start, u64 end)
{
	return start >= CRTOS_USER_START && end <= CRTOS_USER_END &&
	       (end <= CRTOS_SHADOW_START || start >= CRTOS_SHADOW_END);
}

/**
 * crtos_mmap() - map memory of the file's process, at its own address, in its shadow
 * @file: the process's file
 * @vma: what is to be mapped: shared, at the offset process << 47 | address
 *
 * Context: Under mmap_lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct crtos_file *crtos_file = file->private_data;
	struct crtos_process *process = crtos_file_process(crtos_file);
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	int error = 0;

	if (!process)
		return -ESRCH;
	if (offset >> ADDRESS_BITS != process->number ||
	    (offset & ADDRESS_MASK) != vma->vm_start || current->mm != process->mm)
		return -EPERM;
	if (!program_range(vma->vm_start, vma->vm_end) || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;

	crtos_realm_lock();
	if (process->over)
		error = -ESRCH;
	else
		atomic_inc(&process->mappings);
	crtos_realm_unlock();
	if (error)
		return error;
	vma->vm_private_data = process;
	vma->vm_ops = &shadow_vm_ops;
	vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP | VM_MIXEDMAP, VM_MAYEXEC);
	return 0;
}
