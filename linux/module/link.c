// SPDX-License-Identifier: GPL-2.0-only
/*
 * Links: memory that Linux and cells share; see the link part of the interface.
 * Linux's programs have one as /dev/crtos-shm/NAME. The first that opens it is
 * peer 0, until the file is released.
 */
#include <linux/irq_work.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* A link. The hypervisor's interface has the name crtos_link for what is asked of it. */
struct crtos_shm {
	struct kref ref;			/* of the table, and of who has it open */
	u32 number;
	u32 peers;
	u64 common;
	u64 output;
	char name[CRTOS_LINK_NAME_LEN];
	char node[CRTOS_LINK_NAME_LEN + 16];	/* name of the device */
	char path[CRTOS_LINK_NAME_LEN + 16];	/* and of its file */
	struct crtos_file *owner;		/* undoes it at release; NULL when kept */
	void *memory;
	struct crtos_link_header *header;	/* its first page */
	struct crtos_cell *cells[CRTOS_MAX_LINK_PEERS];	/* changes under crtos.lock, too */
	bool open;				/* by a program of Linux; read anywhere */
	bool gone;				/* opens no more */
	u32 noted[CRTOS_MAX_LINK_PEERS];	/* rings of each that who waits was woken for */
	u32 seen[CRTOS_MAX_LINK_PEERS];		/* and those that were read last */
	wait_queue_head_t news;
	struct irq_work wake;
	struct miscdevice misc;
};

/*
 * Protects the table, and of each link its cells and who has it open. Taken under
 * crtos.lock and misc_mtx. Nobody who holds it takes realm_lock.
 */
static DEFINE_MUTEX(links_lock);
static struct crtos_shm __rcu *links[CRTOS_MAX_LINKS];

static struct crtos_shm *link_at(u32 number)
{
	return rcu_dereference_protected(links[number], lockdep_is_held(&links_lock));
}

static struct crtos_link_peer *peer_of(const struct crtos_shm *link, u32 peer)
{
	return link->memory + (1 + peer) * PAGE_SIZE;
}

/* Where the output section of @peer begins; that of one more: the end. */
static u64 output_of(const struct crtos_shm *link, u32 peer)
{
	return (1 + link->peers) * PAGE_SIZE + link->common + peer * link->output;
}

/* May @peer write all of these bytes? */
static bool may_write(const struct crtos_shm *link, u32 peer, u64 start, u64 size)
{
	u64 own = (1 + peer) * PAGE_SIZE, common = (1 + link->peers) * PAGE_SIZE;
	u64 end = start + size, output = output_of(link, peer);

	return (start >= own && end <= own + PAGE_SIZE) ||
	       (start >= common && end <= common + link->common) ||
	       (start >= output && end <= output + link->output);
}

/* The peer of a link that a cell is; 0 if it is none. Under links_lock. */
static u32 place_of(const struct crtos_shm *link, const struct crtos_cell *cell)
{
	u32 peer;

	for (peer = 1; link && peer < link->peers; peer++)
		if (link->cells[peer] == cell)
			return peer;
	return 0;
}

/* How often a peer has rung Linux's program. */
static u32 rings_of(const struct crtos_shm *link, u32 peer)
{
	return READ_ONCE(peer_of(link, peer)->rung[0]);
}

static void free_link(struct kref *ref)
{
	struct crtos_shm *link = container_of(ref, struct crtos_shm, ref);

	irq_work_sync(&link->wake);
	vfree(link->memory);
	kfree(link);
}

static void wake_readers(struct irq_work *work)
{
	wake_up_all(&container_of(work, struct crtos_shm, wake)->news);
}

/* Has @peer hear what was counted for it. Under links_lock. */
static void ring_peer(struct crtos_shm *link, u32 peer)
{
	u32 cpu = READ_ONCE(peer_of(link, peer)->cpu);
	struct crtos_cell *cell = link->cells[peer];

	if (!peer)
		wake_up_all(&link->news);
	else if (cell && crtos_hypercall(CRTOS_HC_DOORBELL, cell->number, cpu, 1, 0) ==
			 CRTOS_HV_INVALID)
		crtos_hypercall(CRTOS_HC_DOORBELL, cell->number, 0, 1, 0);
}

/* Rings @peer in the name of @from, which is gone or is Linux. Under links_lock. */
static void ring(struct crtos_shm *link, u32 from, u32 peer)
{
	atomic_inc((atomic_t *)&peer_of(link, from)->rung[peer]);
	/* The count before the doorbell; pairs with the interrupt. */
	smp_mb__after_atomic();
	ring_peer(link, peer);
}

/* A peer is not there any more: the others see and hear that. Under links_lock. */
static void peer_gone(struct crtos_shm *link, u32 gone)
{
	u32 peer;

	if (!xchg(&peer_of(link, gone)->state, 0))
		return;
	for (peer = 0; peer < link->peers; peer++)
		if (peer != gone)
			ring(link, gone, peer);
}

/* Has a cell failed that says to be there? Any context. */
static bool has_failed(const struct crtos_shm *link, u32 peer)
{
	u32 cell = READ_ONCE(link->header->cells[peer]);

	return cell < CRTOS_MAX_CELLS && READ_ONCE(peer_of(link, peer)->state) &&
	       READ_ONCE(crtos.report->cells[cell].state) == CRTOS_CELL_FAILED;
}

static void failures_work(struct work_struct *work)
{
	struct crtos_shm *link;
	u32 number, peer;

	mutex_lock(&links_lock);
	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = link_at(number);
		for (peer = 1; link && peer < link->peers; peer++)
			if (has_failed(link, peer))
				peer_gone(link, peer);
	}
	mutex_unlock(&links_lock);
}

static DECLARE_WORK(failures, failures_work);

/**
 * crtos_links_doorbell() - a cell has rung, or has failed
 *
 * The work is bounded by the places of links.
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_links_doorbell(void)
{
	struct crtos_shm *link;
	u32 number, peer, count;
	bool news;

	rcu_read_lock();
	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = rcu_dereference(links[number]);
		if (!link)
			continue;
		news = false;
		for (peer = 1; peer < link->peers; peer++) {
			if (has_failed(link, peer))
				queue_work(crtos.work, &failures);
			count = rings_of(link, peer);
			/* Two CPUs at once wake once more than needed. */
			news |= xchg(&link->noted[peer], count) != count;
		}
		if (news && READ_ONCE(link->open))
			irq_work_queue(&link->wake);
	}
	rcu_read_unlock();
}

/**
 * crtos_links_stopped() - a cell does not run any more
 * @cell: the cell
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_links_stopped(const struct crtos_cell *cell)
{
	struct crtos_shm *link;
	u32 number, peer;

	mutex_lock(&links_lock);
	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = link_at(number);
		peer = place_of(link, cell);
		if (peer)
			peer_gone(link, peer);
	}
	mutex_unlock(&links_lock);
}

/* Gives the cell that is @peer the pages of a link. */
static int map(struct crtos_file *file, const struct crtos_cell *cell,
	       const struct crtos_shm *link, u32 peer)
{
	struct crtos_region *region = kzalloc(sizeof(*region), GFP_KERNEL);
	u64 offset, base = CRTOS_LINK_MEMORY + link->number * CRTOS_LINK_SIZE_MAX;
	s64 result = 0;

	if (!region)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	for (offset = 0; offset < output_of(link, link->peers) && !result; offset += PAGE_SIZE) {
		region->cell_address = base + offset;
		region->physical = page_to_phys(vmalloc_to_page(link->memory + offset));
		region->size = PAGE_SIZE;
		region->flags = may_write(link, peer, offset, PAGE_SIZE) ? CRTOS_REGION_WRITE : 0;
		result = crtos_hypercall(CRTOS_HC_CELL_MAP, cell->number, __pa(region), 0, 0);
		cond_resched();
	}
	kfree(region);
	return result ? crtos_refuse_hv(file, result, "give the link to the cell") : 0;
}

/**
 * crtos_links_map() - give a cell the memory of its links
 * @file: where a failure is explained
 * @cell: the cell, which has none of it
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_links_map(struct crtos_file *file, const struct crtos_cell *cell)
{
	struct crtos_shm *link;
	u32 number, peer;
	int error = 0;

	mutex_lock(&links_lock);
	for (number = 0; number < CRTOS_MAX_LINKS && !error; number++) {
		link = link_at(number);
		peer = place_of(link, cell);
		if (peer)
			error = map(file, cell, link, peer);
	}
	mutex_unlock(&links_lock);
	return error;
}

/**
 * crtos_links_leave() - a cell that reaches no memory any more is no peer any more
 * @cell: the cell
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_links_leave(const struct crtos_cell *cell)
{
	struct crtos_shm *link;
	u32 number, peer;

	mutex_lock(&links_lock);
	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = link_at(number);
		peer = place_of(link, cell);
		if (peer) {
			WRITE_ONCE(link->header->cells[peer], CRTOS_LINK_NO_CELL);
			link->cells[peer] = NULL;
		}
	}
	mutex_unlock(&links_lock);
}

/* The link of a name, or NULL. Under links_lock. */
static struct crtos_shm *find(const u8 *name)
{
	struct crtos_shm *link;
	u32 number;

	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = link_at(number);
		if (link && !strncmp(link->name, name, sizeof(link->name)))
			return link;
	}
	return NULL;
}

static struct crtos_shm *need(struct crtos_file *file, const u8 *name)
{
	struct crtos_shm *link = find(name);

	if (!link)
		crtos_refuse(file, -ENOENT,
			     "[link-unknown] there is no link '%.31s': `crtos link create` makes one",
			     name);
	return link;
}

/* The place that a cell asks for. Under links_lock. */
static int choose_peer(struct crtos_file *file, const struct crtos_shm *link,
		       const struct crtos_cell *cell, u32 wanted)
{
	u32 peer = place_of(link, cell);

	if (peer)
		return crtos_refuse(file, -EEXIST, "[link-full] cell '%s' is peer %u of '%s' already",
				    cell->name, peer, link->name);
	for (peer = 1; peer < link->peers; peer++)
		if (!link->cells[peer] && (!wanted || wanted == peer))
			return peer;
	if (wanted)
		return crtos_refuse(file, -EBUSY,
				    "[link-full] peer %u of '%s' is not free: it has peers 1 to %u for cells; choose one that `crtos link list` shows as free",
				    wanted, link->name, link->peers - 1);
	return crtos_refuse(file, -EBUSY,
			    "[link-full] all %u peers of '%s' are taken: destroy a cell, or make the link anew with more --peers",
			    link->peers, link->name);
}

/* The cell may ring all others of the link, and these may ring it. Under links_lock. */
static int make_neighbours(struct crtos_file *file, const struct crtos_shm *link,
			   const struct crtos_cell *cell)
{
	u32 peer;
	s64 result;

	for (peer = 1; peer < link->peers; peer++) {
		if (!link->cells[peer])
			continue;
		result = crtos_hypercall(CRTOS_HC_CELL_LINK, cell->number,
					 link->cells[peer]->number, 0, 0);
		if (result)
			return crtos_refuse_hv(file, result, "link the cells");
	}
	return 0;
}

static int join(struct crtos_file *file, struct crtos_cell *cell, struct crtos_link_join *wanted)
{
	struct crtos_shm *link = need(file, wanted->name);
	int peer, error;

	if (!link)
		return -ENOENT;
	peer = choose_peer(file, link, cell, wanted->peer);
	if (peer < 0)
		return peer;
	error = make_neighbours(file, link, cell);
	if (error)
		return error;
	link->cells[peer] = cell;
	WRITE_ONCE(link->header->cells[peer], cell->number);
	wanted->peer = peer;
	wanted->number = link->number;
	return map(file, cell, link, peer);
}

/**
 * crtos_link_join() - CRTOS_IOC_LINK_JOIN: make a cell a peer of a link
 * @file: where a failure is explained
 * @user: which cell and which link
 *
 * A cell that could not be given all of the memory keeps its place until it is
 * destroyed, since it may reach some.
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_link_join(struct crtos_file *file, struct crtos_link_join __user *user)
{
	struct crtos_link_join wanted;
	struct crtos_cell *cell;
	int error;

	if (copy_from_user(&wanted, user, sizeof(wanted)))
		return -EFAULT;
	cell = crtos_cell_find(file, wanted.cell);
	if (!cell)
		return -ENOENT;
	if (crtos_cell_state(cell) != CRTOS_CELL_CREATED)
		return crtos_refuse(file, -EBUSY,
				    "[cell-state] cell '%s' has run: name the link when you create a cell",
				    cell->name);
	mutex_lock(&links_lock);
	error = join(file, cell, &wanted);
	mutex_unlock(&links_lock);
	if (!error && copy_to_user(user, &wanted, sizeof(wanted)))
		error = -EFAULT;
	return error;
}

/* Is the real-time realm a peer? Under links_lock. */
static bool has_realm(const struct crtos_shm *link)
{
	u32 peer;

	for (peer = 1; peer < link->peers; peer++)
		if (link->cells[peer] && link->cells[peer]->realm)
			return true;
	return false;
}

/*
 * A shadow opens the file for its program, which is not peer 0 but the realm's: the
 * realm's kernel makes it a file of its own. What the shadow has leads to nothing.
 */
static int link_open(struct inode *inode, struct file *file)
{
	struct crtos_shm *link = container_of(file->private_data, struct crtos_shm, misc);
	bool is_shadow = crtos_realm_is_shadow();
	int error = 0;
	u32 peer;

	mutex_lock(&links_lock);
	is_shadow = is_shadow && has_realm(link);
	if (link->gone)
		error = -ENODEV;
	else if (is_shadow)
		file->private_data = NULL;
	else if (link->open)
		error = -EBUSY;
	if (!error && !is_shadow) {
		kref_get(&link->ref);
		WRITE_ONCE(link->open, true);
		/* What was counted before is no news for this program. */
		for (peer = 0; peer < link->peers; peer++)
			WRITE_ONCE(link->seen[peer], rings_of(link, peer));
		file->private_data = link;
	}
	mutex_unlock(&links_lock);
	return error;
}

/* Runs when the last descriptor and the last mapping of the file are gone. */
static int link_release(struct inode *inode, struct file *file)
{
	struct crtos_shm *link = file->private_data;

	if (!link)
		return 0;
	mutex_lock(&links_lock);
	WRITE_ONCE(link->open, false);
	peer_gone(link, 0);
	mutex_unlock(&links_lock);
	kref_put(&link->ref, free_link);
	return 0;
}

/*
 * Has a peer rung since the last read? Each is asked for itself: in a sum, one could hide the
 * rings of another by taking back as many of its own.
 */
static bool has_news(const struct crtos_shm *link)
{
	u32 peer;

	for (peer = 0; peer < link->peers; peer++)
		if (rings_of(link, peer) != READ_ONCE(link->seen[peer]))
			return true;
	return false;
}

/* Reads how often all peers have rung. */
static ssize_t link_read(struct file *file, char __user *user, size_t size, loff_t *position)
{
	struct crtos_shm *link = file->private_data;
	u32 peer, counts[CRTOS_MAX_LINK_PEERS], sum = 0;
	int error;

	if (!link)
		return -EIO;
	if (size != sizeof(sum))
		return -EINVAL;
	if (!has_news(link)) {
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		error = wait_event_interruptible(link->news, has_news(link));
		if (error)
			return error;
	}
	for (peer = 0; peer < link->peers; peer++) {
		counts[peer] = rings_of(link, peer);
		sum += counts[peer];
	}
	if (copy_to_user(user, &sum, sizeof(sum)))
		return -EFAULT;
	for (peer = 0; peer < link->peers; peer++)
		WRITE_ONCE(link->seen[peer], counts[peer]);
	return sizeof(sum);
}

/* Rings the peer whose number is written. */
static ssize_t link_write(struct file *file, const char __user *user, size_t size,
			  loff_t *position)
{
	struct crtos_shm *link = file->private_data;
	u32 peer;

	if (!link)
		return -EIO;
	if (size != sizeof(peer))
		return -EINVAL;
	if (copy_from_user(&peer, user, sizeof(peer)))
		return -EFAULT;
	if (!peer || peer >= link->peers)
		return -EINVAL;
	mutex_lock(&links_lock);
	ring(link, 0, peer);
	mutex_unlock(&links_lock);
	return sizeof(peer);
}

static __poll_t link_poll(struct file *file, poll_table *table)
{
	struct crtos_shm *link = file->private_data;

	if (!link)
		return EPOLLERR;
	poll_wait(file, &link->news, table);
	return EPOLLOUT | EPOLLWRNORM | (has_news(link) ? EPOLLIN | EPOLLRDNORM : 0);
}

static int link_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct crtos_shm *link = file->private_data;
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT, size = vma->vm_end - vma->vm_start;

	if (!link)
		return -EIO;
	/* VM_SHARED is missing where the file is open for reading alone. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	if (start > CRTOS_LINK_SIZE_MAX || start + size > output_of(link, link->peers))
		return -ENXIO;
	vm_flags_mod(vma, 0, VM_MAYEXEC);
	if (!may_write(link, 0, start, size)) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_mod(vma, 0, VM_MAYWRITE);
	}
	return remap_vmalloc_range(vma, link->memory, vma->vm_pgoff);
}

static const struct file_operations link_operations = {
	.owner = THIS_MODULE,
	.open = link_open,
	.release = link_release,
	.read = link_read,
	.write = link_write,
	.poll = link_poll,
	.mmap = link_mmap,
	.llseek = noop_llseek,
};

/* Is it a name, and do its sizes make a link? */
static int check(struct crtos_file *file, const struct crtos_link *wanted)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	u64 size;

	if (!wanted->name[0] ||
	    strspn(wanted->name, letters) != strnlen(wanted->name, sizeof(wanted->name)))
		return crtos_refuse(file, -EINVAL,
				    "[link-shape] the name of a link has 1 to 31 letters, digits, '-', '_'");
	if (wanted->peers < 2 || wanted->peers > CRTOS_MAX_LINK_PEERS)
		return crtos_refuse(file, -EINVAL,
				    "[link-shape] %u peers were asked for: a link has 2 to %u, Linux among them",
				    wanted->peers, CRTOS_MAX_LINK_PEERS);
	if ((wanted->common | wanted->output) % PAGE_SIZE)
		return crtos_refuse(file, -EINVAL,
				    "[link-shape] %llu bytes in common and %llu for each peer were asked for: give multiples of 4 KiB",
				    wanted->common, wanted->output);
	size = (1 + wanted->peers) * PAGE_SIZE;
	if (wanted->common > CRTOS_LINK_SIZE_MAX || wanted->output > CRTOS_LINK_SIZE_MAX ||
	    size + wanted->common + wanted->peers * wanted->output > CRTOS_LINK_SIZE_MAX)
		return crtos_refuse(file, -EINVAL,
				    "[link-shape] %llu bytes in common and %llu for each of %u peers were asked for: a link has 16 MiB at most",
				    wanted->common, wanted->output, wanted->peers);
	return 0;
}

static void fill_header(struct crtos_shm *link)
{
	struct crtos_link_header *header = link->header;
	u32 peer;

	header->abi_version = CRTOS_ABI_VERSION;
	header->peers = link->peers;
	header->common = link->common;
	header->output = link->output;
	header->device = new_encode_dev(link->misc.this_device->devt);
	memcpy(header->name, link->name, sizeof(header->name));
	for (peer = 0; peer < CRTOS_MAX_LINK_PEERS; peer++)
		header->cells[peer] = CRTOS_LINK_NO_CELL;
	header->magic = CRTOS_LINK_MAGIC;
}

static int make(struct crtos_file *file, const struct crtos_link *wanted, u32 number)
{
	struct crtos_shm *link = kzalloc(sizeof(*link), GFP_KERNEL);
	int error;

	if (!link)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	kref_init(&link->ref);
	link->number = number;
	link->peers = wanted->peers;
	link->common = wanted->common;
	link->output = wanted->output;
	strscpy(link->name, wanted->name, sizeof(link->name));
	snprintf(link->node, sizeof(link->node), "crtos-shm-%s", link->name);
	snprintf(link->path, sizeof(link->path), "crtos-shm/%s", link->name);
	init_waitqueue_head(&link->news);
	init_irq_work(&link->wake, wake_readers);
	link->memory = vmalloc_user(output_of(link, link->peers));
	if (!link->memory) {
		kref_put(&link->ref, free_link);
		return crtos_refuse(file, -ENOMEM,
				    "[out-of-memory] Linux has no memory for the link: ask for less");
	}
	link->header = link->memory;
	link->misc.minor = MISC_DYNAMIC_MINOR;
	link->misc.name = link->node;
	link->misc.nodename = link->path;
	link->misc.mode = 0660;
	link->misc.fops = &link_operations;
	error = misc_register(&link->misc);
	if (error) {
		kref_put(&link->ref, free_link);
		return crtos_refuse(file, error, "[out-of-memory] Linux makes no device file for the link: end some programs");
	}
	fill_header(link);
	link->owner = file;
	file->owns = true;
	mutex_lock(&links_lock);
	rcu_assign_pointer(links[number], link);
	mutex_unlock(&links_lock);
	return number;
}

/**
 * crtos_link_create() - CRTOS_IOC_LINK_CREATE
 * @file: the file that undoes it at release
 * @user: its name and sizes
 *
 * Context: Under crtos.lock, which keeps the table as it is; may sleep.
 * Return: its number or a negative error.
 */
int crtos_link_create(struct crtos_file *file, struct crtos_link __user *user)
{
	struct crtos_link wanted;
	bool exists;
	u32 number;
	int error;

	if (copy_from_user(&wanted, user, sizeof(wanted)))
		return -EFAULT;
	wanted.name[sizeof(wanted.name) - 1] = '\0';
	error = check(file, &wanted);
	if (error)
		return error;
	mutex_lock(&links_lock);
	exists = find(wanted.name);
	for (number = 0; number < CRTOS_MAX_LINKS && link_at(number); number++)
		;
	mutex_unlock(&links_lock);
	if (exists)
		return crtos_refuse(file, -EEXIST,
				    "[link-exists] there is a link '%s' already: destroy it first, or choose another name",
				    wanted.name);
	if (number == CRTOS_MAX_LINKS)
		return crtos_refuse(file, -ENOSPC, "[link-full] there are %u links already: destroy one",
				    CRTOS_MAX_LINKS);
	return make(file, &wanted, number);
}

static bool has_cells(const struct crtos_shm *link)
{
	u32 peer;

	for (peer = 1; peer < link->peers; peer++)
		if (link->cells[peer])
			return true;
	return false;
}

/* Takes a link without cells away. Under crtos.lock. */
static void end(struct crtos_shm *link)
{
	mutex_lock(&links_lock);
	link->gone = true;
	rcu_assign_pointer(links[link->number], NULL);
	mutex_unlock(&links_lock);
	/* Whoever opens it just now is done behind this, which waits for misc_mtx. */
	misc_deregister(&link->misc);
	synchronize_rcu();
	kref_put(&link->ref, free_link);
}

/**
 * crtos_link_destroy() - CRTOS_IOC_LINK_DESTROY
 * @file: where a failure is explained
 * @user: its name
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_link_destroy(struct crtos_file *file, struct crtos_link __user *user)
{
	struct crtos_link wanted;
	struct crtos_shm *link;
	bool open, joined;

	if (copy_from_user(&wanted, user, sizeof(wanted)))
		return -EFAULT;
	mutex_lock(&links_lock);
	link = need(file, wanted.name);
	open = link && link->open;
	joined = link && has_cells(link);
	mutex_unlock(&links_lock);
	if (!link)
		return -ENOENT;
	if (joined)
		return crtos_refuse(file, -EBUSY,
				    "[link-in-use] cells are peers of '%s': destroy them first; `crtos link list` shows them",
				    link->name);
	if (open)
		return crtos_refuse(file, -EBUSY,
				    "[link-in-use] a program has /dev/crtos-shm/%s open: end it first (fuser tells which)",
				    link->name);
	end(link);
	return 0;
}

/**
 * crtos_link_info() - CRTOS_IOC_LINK_INFO
 * @user: which number, and where the answer goes
 *
 * Context: May sleep.
 * Return: 0, or -ENOENT if there is none of that number.
 */
int crtos_link_info(struct crtos_link __user *user)
{
	struct crtos_link info;
	struct crtos_shm *link;
	u32 peer;

	if (copy_from_user(&info, user, sizeof(info)))
		return -EFAULT;
	if (info.number >= CRTOS_MAX_LINKS)
		return -ENOENT;
	mutex_lock(&links_lock);
	link = link_at(info.number);
	if (link) {
		memcpy(info.name, link->name, sizeof(info.name));
		info.peers = link->peers;
		info.common = link->common;
		info.output = link->output;
		for (peer = 0; peer < CRTOS_MAX_LINK_PEERS; peer++) {
			info.cells[peer] = link->cells[peer] ? link->cells[peer]->number :
							       CRTOS_NO_CELL;
			info.states[peer] = peer < link->peers ?
					    READ_ONCE(peer_of(link, peer)->state) : 0;
		}
	}
	mutex_unlock(&links_lock);
	if (!link)
		return -ENOENT;
	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

/**
 * crtos_links_keep() - CRTOS_IOC_KEEP: a file does not undo its links any more
 * @file: the file
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_links_keep(const struct crtos_file *file)
{
	struct crtos_shm *link;
	u32 number;

	mutex_lock(&links_lock);
	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		link = link_at(number);
		if (link && link->owner == file)
			link->owner = NULL;
	}
	mutex_unlock(&links_lock);
}

/**
 * crtos_links_release() - take the links away that a file made and did not keep
 * @file: the file, which is gone and has no cells any more; NULL: those that were kept
 *
 * One of which a cell is a peer meanwhile stays.
 *
 * Context: Under crtos.lock, or when no other call is possible; may sleep.
 */
void crtos_links_release(const struct crtos_file *file)
{
	struct crtos_shm *link;
	bool ends;
	u32 number;

	for (number = 0; number < CRTOS_MAX_LINKS; number++) {
		mutex_lock(&links_lock);
		link = link_at(number);
		ends = link && link->owner == file && !has_cells(link);
		if (link && link->owner == file)
			link->owner = NULL;
		mutex_unlock(&links_lock);
		if (ends)
			end(link);
	}
}
