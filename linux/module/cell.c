// SPDX-License-Identifier: GPL-2.0-only
/*
 * Cells: what they get from Linux, and how it comes back. The callers hold
 * crtos.lock.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/smp.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Bounds of a vector that interrupts may have. */
#define FIRST_VECTOR	32
#define LAST_VECTOR	255

/* Most bytes of a pool: what a machine of 512 GiB can have. */
#define MAX_SHARED	(512ull << 30)

/**
 * crtos_cell_find() - find a cell
 * @file: where a failure is explained
 * @number: the cell's number, any
 *
 * Context: Under crtos.lock.
 * Return: the cell or NULL.
 */
struct crtos_cell *crtos_cell_find(struct crtos_file *file, u32 number)
{
	if (number < CRTOS_MAX_CELLS && crtos.cells[number])
		return crtos.cells[number];
	crtos_refuse(file, -ENOENT, "[cell-unknown] there is no cell %u", number);
	return NULL;
}

/**
 * crtos_cell_mask() - which cells exist
 *
 * Context: Under crtos.lock.
 * Return: a bit for each.
 */
u32 crtos_cell_mask(void)
{
	u32 mask = 0;
	int i;

	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i])
			mask |= BIT(i);
	return mask;
}

/**
 * crtos_cell_state() - the state of a cell
 * @cell: the cell
 *
 * Context: Any in which the cell stays.
 * Return: CRTOS_CELL_*, as the hypervisor stored it; it looks itself when it is called.
 */
u32 crtos_cell_state(const struct crtos_cell *cell)
{
	return READ_ONCE(crtos.report->cells[cell->number].state);
}

/**
 * crtos_cell_locked() - is the cell locked?
 * @cell: the cell
 *
 * Context: Under crtos.lock.
 * Return: whether it was a moment ago.
 */
bool crtos_cell_locked(const struct crtos_cell *cell)
{
	return cell->created && crtos_cell_state(cell) == CRTOS_CELL_LOCKED;
}

static bool cell_runs(const struct crtos_cell *cell)
{
	return crtos_cell_state(cell) == CRTOS_CELL_RUNNING || crtos_cell_locked(cell);
}

/**
 * crtos_any_locked() - is any cell locked?
 *
 * Context: Any.
 * Return: whether one was a moment ago.
 */
bool crtos_any_locked(void)
{
	const struct crtos_report *report = READ_ONCE(crtos.report);
	int i;

	for (i = 0; report && i < CRTOS_MAX_CELLS; i++)
		/* Stored by the hypervisor. */
		if (READ_ONCE(report->cells[i].state) == CRTOS_CELL_LOCKED)
			return true;
	return false;
}

static bool realm_exists(void)
{
	int i;

	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i] && crtos.cells[i]->realm)
			return true;
	return false;
}

/* By ports and registers a program would reach the machine, and by it Linux's kernel. */
static int check_lockdown(struct crtos_file *file, const struct crtos_create_cell *create)
{
	if (create->port_count && security_locked_down(LOCKDOWN_IOPORT))
		return crtos_refuse(file, -EPERM,
				    "[lockdown] Linux is locked down, and I/O ports were asked for: leave them out");
	if (create->msr_count && security_locked_down(LOCKDOWN_MSR))
		return crtos_refuse(file, -EPERM,
				    "[lockdown] Linux is locked down, and model-specific registers were asked for: leave them out");
	return 0;
}

static int check_create(struct crtos_file *file, const struct crtos_create_cell *create)
{
	u64 unaligned = (create->private_size | create->shared_size) & (CRTOS_LARGE_PAGE_SIZE - 1);

	if (!crtos.enabled)
		return crtos_refuse(file, -ENODEV, "[bad-call] the hypervisor does not run: enable it first");
	if (unaligned || !create->private_size || create->private_size > CRTOS_MAX_PRIVATE ||
	    create->shared_size > MAX_SHARED)
		return crtos_refuse(file, -EINVAL,
				    "[bad-call] %llu bytes private and %llu bytes shared memory were asked for: give multiples of 2 MiB, private at least 2 MiB and at most 2 GiB",
				    create->private_size, create->shared_size);
	if (create->doorbell_vector < FIRST_VECTOR || create->doorbell_vector > LAST_VECTOR ||
	    create->link_vector < FIRST_VECTOR || create->link_vector > LAST_VECTOR)
		return crtos_refuse(file, -EINVAL,
				    "[bad-call] vector %u or %u is none of an interrupt",
				    create->doorbell_vector, create->link_vector);
	if (create->port_count > CRTOS_MAX_PORT_RANGES || create->msr_count > CRTOS_MAX_MSR_RANGES)
		return crtos_refuse(file, -EINVAL,
				    "[cell-limit] %u port ranges and %u register ranges were asked for: at most %u and %u are possible",
				    create->port_count, create->msr_count,
				    CRTOS_MAX_PORT_RANGES, CRTOS_MAX_MSR_RANGES);
	if (create->flags & ~(CRTOS_CREATE_REALM | CRTOS_CREATE_CALLS_FOLLOW))
		return crtos_refuse(file, -EINVAL, "[bad-call] unknown flags %x", create->flags);
	if ((create->flags & CRTOS_CREATE_REALM) && realm_exists())
		return crtos_refuse(file, -EEXIST,
				    "[already-up] the real-time realm is there already: take it down first (crtos down)");
	return check_lockdown(file, create);
}

/* The CPUs that are asked for. */
static int read_cpus(struct crtos_file *file, const struct crtos_create_cell *create,
		     struct cpumask *cpus)
{
	unsigned int cpu, count = 0;

	cpumask_clear(cpus);
	for (cpu = 0; cpu < CRTOS_MAX_CPUS; cpu++) {
		if (!(create->cpus[cpu / 64] & BIT_ULL(cpu % 64)))
			continue;
		if (cpu >= nr_cpu_ids || !cpu_present(cpu))
			return crtos_refuse(file, -ENODEV,
					    "[cpu-absent] there is no CPU %u: this machine has CPUs %*pbl",
					    cpu, cpumask_pr_args(cpu_present_mask));
		cpumask_set_cpu(cpu, cpus);
		count++;
	}
	if (!count || count > CRTOS_MAX_CELL_CPUS)
		return crtos_refuse(file, -EINVAL,
				    "[cell-limit] %u CPUs were asked for: a cell has at least one and at most %u",
				    count, CRTOS_MAX_CELL_CPUS);
	return 0;
}

static int take_memory(struct crtos_file *file, struct crtos_cell *cell,
		       const struct crtos_create_cell *create)
{
	u64 wanted = create->private_size + create->shared_size + CRTOS_LARGE_PAGE_SIZE;
	u64 available = (u64)si_mem_available() << PAGE_SHIFT;
	u64 got;
	int error;

	if (wanted > available)
		return crtos_refuse(file, -ENOMEM,
				    "[memory-short] %llu MiB were asked for, and Linux has %llu MiB available: ask for less or end some programs",
				    wanted >> 20, available >> 20);
	error = crtos_blocks_take(&cell->channel, CRTOS_LARGE_PAGE_SIZE);
	if (!error)
		error = crtos_blocks_take(&cell->private, create->private_size);
	if (!error && create->shared_size) {
		error = crtos_blocks_take(&cell->pool, create->shared_size);
		crtos_blocks_share(&cell->pool);
	}
	got = (cell->channel.count + cell->private.count + cell->pool.count) *
	      CRTOS_LARGE_PAGE_SIZE;
	if (error == -ENOMEM)
		return crtos_refuse(file, error,
				    "[memory-fragmented] %llu MiB in blocks of 2 MiB were asked for, and %llu MiB could be had: ask for less, or free memory (echo 3 > /proc/sys/vm/drop_caches)",
				    wanted >> 20, got >> 20);
	return error;
}

static int create_in_hypervisor(struct crtos_file *file, struct crtos_cell *cell,
				const struct crtos_create_cell *create)
{
	struct crtos_cell_config *config = kzalloc(sizeof(*config), GFP_KERNEL);
	s64 number;

	if (!config)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	memcpy(config->name, create->name, sizeof(config->name));
	config->doorbell_vector = create->doorbell_vector;
	config->link_vector = create->link_vector;
	config->cpu_count = cell->cpu_count;
	memcpy(config->cpus, cell->cpus, sizeof(config->cpus));
	config->port_count = create->port_count;
	config->msr_count = create->msr_count;
	memcpy(config->ports, create->ports, sizeof(config->ports));
	memcpy(config->msrs, create->msrs, sizeof(config->msrs));
	number = crtos_hypercall(CRTOS_HC_CELL_CREATE, __pa(config), 0, 0, 0);
	kfree(config);
	if (number == CRTOS_HV_DENIED)
		return crtos_refuse(file, -EPERM,
				    "[reboot-needed] a CPU of Linux has left the hypervisor by itself, and could touch the cell's memory: reboot");
	if (number < 0)
		return crtos_refuse_hv(file, number, "create the cell");
	if (WARN_ON_ONCE(number >= CRTOS_MAX_CELLS || crtos.cells[number]))
		return -EIO;
	cell->number = number;
	cell->created = true;
	crtos.cells[number] = cell;
	return crtos_doorbell_open(file, &cell->doorbell, number, create->linux_cpu,
				   create->flags & CRTOS_CREATE_CALLS_FOLLOW);
}

/* Gives blocks to the cell from @address on. */
static int map_blocks(struct crtos_file *file, struct crtos_cell *cell,
		      const struct crtos_blocks *blocks, u64 address, u32 flags)
{
	struct crtos_region *region = kzalloc(sizeof(*region), GFP_KERNEL);
	s64 result = 0;
	u64 i;

	if (!region)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	for (i = 0; i < blocks->count && !result; i++) {
		if (fatal_signal_pending(current)) {
			kfree(region);
			return -EINTR;
		}
		region->cell_address = address + i * CRTOS_LARGE_PAGE_SIZE;
		region->physical = page_to_phys(blocks->page[i]);
		region->size = CRTOS_LARGE_PAGE_SIZE;
		region->flags = flags;
		result = crtos_hypercall(CRTOS_HC_CELL_MAP, cell->number, __pa(region), 0, 0);
		cond_resched();
	}
	kfree(region);
	return result ? crtos_refuse_hv(file, result, "give memory to the cell") : 0;
}

static int map_memory(struct crtos_file *file, struct crtos_cell *cell)
{
	u32 flags = CRTOS_REGION_WRITE | CRTOS_REGION_EXECUTE;
	int error;

	error = map_blocks(file, cell, &cell->private, 0, flags | CRTOS_REGION_PRIVATE);
	if (!error)
		error = map_blocks(file, cell, &cell->channel, CRTOS_CHANNEL_ADDRESS,
				   CRTOS_REGION_WRITE);
	if (!error)
		error = map_blocks(file, cell, &cell->pool, CRTOS_SHARED_POOL, flags);
	if (!error)
		error = crtos_links_map(file, cell);
	cell->mapped = !error;
	return error;
}

/* Stops the cell and has the hypervisor take its memory back, cleared. */
static int reclaim_memory(struct crtos_file *file, struct crtos_cell *cell)
{
	s64 result;

	result = crtos_hypercall(CRTOS_HC_CELL_STOP, cell->number, 0, 0, 0);
	if (result)
		return crtos_refuse_hv(file, result, "stop the cell");
	crtos_links_stopped(cell);
	cell->mapped = false;
	do {
		result = crtos_hypercall(CRTOS_HC_CELL_RECLAIM, cell->number, 0, 0, 0);
		cond_resched();
	} while (result > 0);
	return result ? crtos_refuse_hv(file, result, "take the cell's memory back") : 0;
}

/**
 * crtos_cell_renew() - clear the memory of a cell that has run, so that it can be loaded
 * @file: where a failure is explained
 * @cell: the cell; if it runs, or has not run yet, nothing happens
 *
 * The hypervisor lets nobody load beside what a cell left behind.
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the next call goes on.
 */
int crtos_cell_renew(struct crtos_file *file, struct crtos_cell *cell)
{
	int error;

	if (cell_runs(cell) || (crtos_cell_state(cell) == CRTOS_CELL_CREATED && cell->mapped))
		return 0;
	error = reclaim_memory(file, cell);
	return error ?: map_memory(file, cell);
}

/*
 * Takes the cell away from the hypervisor. If that fails, nothing of the cell
 * can be given back.
 */
static int destroy_in_hypervisor(struct crtos_file *file, struct crtos_cell *cell)
{
	s64 result;
	int error;

	if (!cell->created)
		return 0;
	error = reclaim_memory(file, cell);
	if (!error)
		error = crtos_devices_return(file, cell->number);
	if (error)
		return error;
	result = crtos_hypercall(CRTOS_HC_CELL_DESTROY, cell->number, 0, 0, 0);
	if (result)
		return crtos_refuse_hv(file, result, "destroy the cell");
	crtos_doorbell_close(&cell->doorbell);
	crtos.cells[cell->number] = NULL;
	cell->created = false;
	return 0;
}

/* Gives back whatever the cell got so far. Its realm, if any, is empty. */
static int undo_cell(struct crtos_file *file, struct crtos_cell *cell)
{
	int error;

	if (cell->realm) {
		crtos_realm_stop();
		crtos_ethernet_remove(crtos_realm_kept());
	}
	error = destroy_in_hypervisor(file, cell);
	if (error)
		return error;
	if (cell->realm)
		crtos_realm_destroy();
	crtos_links_leave(cell);
	crtos_blocks_show(&cell->private);
	crtos_blocks_return(&cell->private);
	crtos_blocks_return(&cell->channel);
	crtos_blocks_return_shared(&cell->pool);
	crtos_ports_return(cell);
	crtos_cpus_return(cell);
	kfree(cell);
	return 0;
}

static int make_cell(struct crtos_file *file, struct crtos_cell *cell,
		     const struct crtos_create_cell *create)
{
	static struct cpumask cpus;	/* under crtos.lock */
	int error;

	error = read_cpus(file, create, &cpus);
	if (!error)
		error = take_memory(file, cell, create);
	if (!error)
		error = crtos_cpus_take(file, cell, &cpus);
	if (!error)
		error = crtos_ports_reserve(file, cell, create);
	if (!error)
		error = create_in_hypervisor(file, cell, create);
	if (!error) {
		crtos_blocks_hide(&cell->private);
		error = map_memory(file, cell);
	}
	if (!error && create->flags & CRTOS_CREATE_REALM) {
		error = crtos_realm_create(cell);
		cell->realm = !error;
	}
	return error;
}

/**
 * crtos_cell_create() - CRTOS_IOC_CELL_CREATE
 * @file: the file that undoes it at release
 * @user: what is asked for, and where the APIC ids of the CPUs go
 *
 * Context: Under crtos.lock; may sleep.
 * Return: the cell's number or a negative error; then nothing has changed.
 */
int crtos_cell_create(struct crtos_file *file, struct crtos_create_cell __user *user)
{
	struct crtos_create_cell *create;
	struct crtos_cell *cell;
	int error, i;

	create = memdup_user(user, sizeof(*create));
	if (IS_ERR(create))
		return PTR_ERR(create);
	error = check_create(file, create);
	if (error)
		goto out;
	error = -ENOMEM;
	cell = kzalloc(sizeof(*cell), GFP_KERNEL);
	if (!cell)
		goto out;
	cell->owner = file;
	file->owns = true;
	memcpy(cell->name, create->name, sizeof(create->name));
	error = make_cell(file, cell, create);
	if (!error) {
		for (i = 0; i < cell->cpu_count; i++)
			create->apic_ids[i] = per_cpu(x86_cpu_to_apicid, cell->cpus[i]);
		if (copy_to_user(user, create, sizeof(*create)))
			error = -EFAULT;
	}
	if (error)
		undo_cell(NULL, cell);
	else
		error = cell->number;
out:
	kfree(create);
	return error;
}

/**
 * crtos_cell_start() - CRTOS_IOC_CELL_START
 * @file: where a failure is explained
 * @user: which cell, and where it begins
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_cell_start(struct crtos_file *file, struct crtos_start_cell __user *user)
{
	struct crtos_start_cell start;
	struct crtos_cell *cell;
	s64 result;

	if (copy_from_user(&start, user, sizeof(start)))
		return -EFAULT;
	cell = crtos_cell_find(file, start.cell);
	if (!cell)
		return -ENOENT;
	if (cell_runs(cell))
		return crtos_refuse(file, -EBUSY,
				    "[cell-state] cell '%s' runs: stop it first", cell->name);
	if (crtos_cell_state(cell) != CRTOS_CELL_CREATED)
		return crtos_refuse(file, -EBUSY, "[cell-state] cell '%s' has run: load it anew first",
				    cell->name);
	if (cell->realm) {
		if (!crtos_realm_empty(false, true))
			return crtos_refuse(file, -EBUSY,
					    "[programs-live] programs of the realm that stopped are still there: end them first");
		crtos_realm_start();
	}
	result = crtos_hypercall(CRTOS_HC_CELL_START, cell->number, start.entry,
				 start.page_table, start.argument);
	if (!result)
		return 0;
	if (cell->realm)
		crtos_realm_stop();
	return crtos_refuse_hv(file, result, "start the cell");
}

/**
 * crtos_cell_stop() - CRTOS_IOC_CELL_STOP
 * @file: where a failure is explained
 * @number: the cell
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_cell_stop(struct crtos_file *file, u32 number)
{
	struct crtos_cell *cell = crtos_cell_find(file, number);
	s64 result;

	if (!cell)
		return -ENOENT;
	result = crtos_hypercall(CRTOS_HC_CELL_STOP, cell->number, 0, 0, 0);
	if (result)
		return crtos_refuse_hv(file, result, "stop the cell");
	crtos_links_stopped(cell);
	if (cell->realm)
		crtos_realm_stop();
	return 0;
}

/**
 * crtos_cell_lock() - CRTOS_IOC_CELL_LOCK: only the cell itself ends from now on
 * @file: where a failure is explained
 * @number: the cell
 *
 * The cell is kept: nobody could undo it when the file is released.
 *
 * Context: Under crtos.lock.
 * Return: 0 or a negative error.
 */
int crtos_cell_lock(struct crtos_file *file, u32 number)
{
	struct crtos_cell *cell = crtos_cell_find(file, number);
	s64 result;

	if (!cell)
		return -ENOENT;
	if (!cell_runs(cell))
		return crtos_refuse(file, -EBUSY, "[cell-state] cell '%s' does not run: start it first",
				    cell->name);
	result = crtos_hypercall(CRTOS_HC_CELL_LOCK, number, 0, 0, 0);
	if (result == CRTOS_HV_OWNED)
		return crtos_refuse(file, -EBUSY,
				    "[ports-in-use] another cell may use a port that resets the machine: destroy that cell first");
	if (result)
		return crtos_refuse_hv(file, result, "lock the cell");
	cell->owner = NULL;
	if (crtos.owner == file)
		crtos.owner = NULL;
	pr_info("crtos: cell '%s' is locked\n", cell->name);
	return 0;
}

/**
 * crtos_cell_seal() - CRTOS_IOC_CELL_SEAL: the realm takes no new program from now on
 * @file: where a failure is explained
 * @number: its cell
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_cell_seal(struct crtos_file *file, u32 number)
{
	struct crtos_cell *cell = crtos_cell_find(file, number);

	if (!cell)
		return -ENOENT;
	if (!cell->realm)
		return crtos_refuse(file, -EINVAL, "[not-the-realm] cell '%s' is not the real-time realm",
				    cell->name);
	if (!crtos_cell_locked(cell))
		return crtos_refuse(file, -EBUSY, "[not-locked] the realm is not locked");
	if (!crtos_realm_seal()) {
		if (fatal_signal_pending(current))
			return -EINTR;
		return crtos_refuse(file, -EIO, "[kernel-silent] the realm's kernel does not agree: see its log");
	}
	pr_info("crtos: cell '%s' is sealed\n", cell->name);
	return 0;
}

/*
 * How often the kernel of a locked realm is asked, in a second: a program that has ended in Linux
 * may take it a moment more.
 */
#define END_TRIES	50
#define END_PAUSE_MS	20

/* Asks a locked cell to agree to its end. */
static int ask_for_end(struct crtos_file *file, struct crtos_cell *cell)
{
	bool answers = true;
	int i;

	if (!cell->realm)
		return crtos_refuse(file, -EBUSY,
				    "[cell-locked] cell '%s' is locked, and its program has not unlocked it: only that ends it",
				    cell->name);
	if (!crtos_realm_empty(false, true))
		return crtos_refuse(file, -EBUSY,
				    "[cell-locked] the realm is locked, and %u programs live there: they have to end by themselves, force does not help",
				    crtos_realm_processes());
	for (i = 0; i < END_TRIES && answers; i++) {
		answers = crtos_realm_ask_end();
		if (!crtos_cell_locked(cell))
			return 0;
		msleep(END_PAUSE_MS);
	}
	crtos_realm_reopen();
	if (fatal_signal_pending(current))
		return -EINTR;
	return crtos_refuse(file, -EBUSY,
			    "[cell-locked] the realm is locked, and its kernel does not agree to its end: wait until the programs there have ended, then try again");
}

/**
 * crtos_cell_destroy() - CRTOS_IOC_CELL_DESTROY
 * @file: where a failure is explained
 * @number: the cell
 * @force: kill programs that live in it
 *
 * Context: Under crtos.lock; waits for shadows to die.
 * Return: 0 or a negative error.
 */
int crtos_cell_destroy(struct crtos_file *file, u32 number, bool force)
{
	struct crtos_cell *cell = crtos_cell_find(file, number);
	int error;

	if (!cell)
		return -ENOENT;
	if (crtos_cell_locked(cell)) {
		error = ask_for_end(file, cell);
		if (error)
			return error;
	}
	if (cell->realm && !crtos_realm_empty(force, true)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		return crtos_refuse(file, -EBUSY,
				    "[programs-live] %u programs live in the realm: end them, or force it",
				    crtos_realm_processes());
	}
	return undo_cell(file, cell);
}

/**
 * crtos_cells_release() - destroy the cells that a file made and did not keep
 * @file: the file, which is gone; NULL: cells that were kept, but for locked ones
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_cells_release(struct crtos_file *file)
{
	int i;

	for (i = 0; i < CRTOS_MAX_CELLS; i++) {
		struct crtos_cell *cell = crtos.cells[i];

		if (!cell || cell->owner != file || crtos_cell_locked(cell))
			continue;
		cell->owner = NULL;
		if (cell->realm && !crtos_realm_empty(true, false))
			pr_err("crtos: programs of cell '%s' do not die: destroy it later\n",
			       cell->name);
		else
			undo_cell(NULL, cell);
	}
}

/**
 * crtos_cell_doorbell() - CRTOS_IOC_DOORBELL: ring a cell on one of its CPUs
 * @file: where a failure is explained
 * @number: the cell
 * @index: of the CPU in the cell
 *
 * Context: Under crtos.lock.
 * Return: 0 or a negative error.
 */
int crtos_cell_doorbell(struct crtos_file *file, u32 number, u32 index)
{
	s64 result;

	if (!crtos_cell_find(file, number))
		return -ENOENT;
	result = crtos_hypercall(CRTOS_HC_DOORBELL, number, index, 0, 0);
	return result ? crtos_refuse_hv(file, result, "ring the cell") : 0;
}
