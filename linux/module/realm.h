/* SPDX-License-Identifier: GPL-2.0-only */
/* The real-time realm as Linux sees it: its channel, its processes. */
#ifndef CRTOS_REALM_H
#define CRTOS_REALM_H

#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/path.h>
#include <linux/sched.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "abi.h"
#include "channel.h"

struct crtos_cell;
struct crtos_device_memory;
struct crtos_ethernet_end;
struct crtos_file;
struct kstat;

/* A clock of the realm as a line through the time stamp counter. */
struct crtos_line {
	u64 base;			/* of the realm, at the clock's count */
	u64 of_linux;			/* of Linux, at that count */
	u32 mult;
};

/* Clocks that the realm reads; see clock.c. */
struct crtos_clock {
	u64 tsc;
	struct crtos_line monotonic;
	struct crtos_line raw;
	ktime_t realtime;		/* of Linux, when CLOCK_MONOTONIC shows 0 */
	ktime_t boottime;
	ktime_t tai;
};

/* A PCI function that the realm is to have. Set under crtos.lock. */
struct crtos_wish {
	bool wanted;			/* changes under realm_lock */
	bool ends;			/* likewise; crtos_wish_end() asks whether it can */
	u16 function;			/* or number of a platform device */
	u32 serial;			/* the same for no other wish */
	const struct crtos_device_memory *memory;	/* by base address register */
	dev_t number;			/* of the file that leads to it */
	u32 group;			/* 1 + its group of VFIO, or 0 */
	u32 line;			/* of a platform device, as in struct crtos_wanted_device */
	const char *description;	/* likewise; or NULL */
};

/*
 * The realm. Under realm_lock, but for what is said to be read without it: that is
 * stored by WRITE_ONCE() under the lock and read by READ_ONCE() anywhere.
 */
struct crtos_realm {
	struct crtos_cell *cell;	/* the same as long as the realm is there */
	struct crtos_channel *channel;	/* so is this */
	struct crtos_thread __rcu *threads[CRTOS_SLOTS];
	u32 words;			/* of slots that have had threads; read without the lock */
	struct list_head processes;
	u32 process_count;		/* read without the lock */
	u32 last_number;
	bool alive;			/* between start and stop; read without the lock */
	bool closed;			/* takes no new processes: about to end */
	wait_queue_head_t empty;	/* process_count fell to 0 */
	struct crtos_clock clock;	/* under page_lock */
	atomic_t revocations_finished;	/* carried out, or waiting for pins, since the start */
	struct work_struct revocations;
	struct work_struct interrupts;
	DECLARE_BITMAP(interrupted, CRTOS_SLOTS);	/* atomic */
	struct crtos_wish wishes[CRTOS_MAX_DEVICES];
	u32 last_serial;		/* under crtos.lock */
	struct delayed_work tick;
	struct crtos_ethernet_end __rcu *ethernet;	/* or NULL; changes under crtos.lock */
	struct mutex places_mutex;	/* pages come and go at one place after the other */
	spinlock_t places_lock;		/* protects places and places_end */
	struct crtos_place *places;	/* of the share window */
	u32 places_end;			/* behind the last that was ever used */
	u64 given_up_seen;		/* of the channel's given_up_count; read anywhere */
	struct crtos_region *region;	/* for the hypervisor; under places_mutex */
	struct delayed_work settle;
	struct work_struct recall;
	struct delayed_work futex_looks;
	u64 futex_looks_seen;		/* of the channel's futex_looks; read anywhere */
	unsigned long futex_looks_next;	/* jiffies: not before; read anywhere */
	spinlock_t successors_lock;	/* protects successors */
	struct file *successors[CRTOS_SUCCESSORS];	/* by number; or NULL */
	struct work_struct successor_work;
	u64 successor_drops_seen;	/* of the channel's successor_drops; read anywhere */
};

/* A rich real-time process: the shadow's side of it. */
struct crtos_process {
	struct kref ref;
	struct list_head link;		/* in the realm until all is given back, then empty */
	struct crtos_realm *realm;
	u32 number;
	struct mm_struct *mm;		/* whose shadow; compared, never used */
	struct pid *pid;
	struct path path;		/* of the device, with the file system that has it */
	atomic_t calls;			/* ioctls in progress; see crtos_process_enter() */
	atomic_t mappings;		/* VMAs */
	bool over;			/* no call or mapping begins any more; read anywhere */
	bool shared;			/* by several processes of Linux (CLONE_VM) */
	struct list_head threads;	/* under realm_lock */
	struct xarray by_tid;		/* threads by Linux's global thread id */
	struct xarray kept;		/* struct crtos_kept by page number; under realm_lock */
	struct xarray pages;		/* pages given to Linux, by page number; tag 1: may write */
	u64 revocations_begun;		/* under the lock of pages */
	struct mutex revocation_lock;	/* revocations are carried out one after the other */
	struct list_head pinned;	/* revocations that wait for pins, under revocation_lock */
	struct delayed_work reap;
};

/* A shadow thread. */
struct crtos_thread {
	struct list_head link;		/* in the process, under realm_lock */
	struct crtos_process *process;
	struct task_struct *task;
	pid_t tid;			/* in by_tid; execve can change that of the task */
	u32 slot;
	kuid_t payer;			/* whose share it is of */
	bool waiting;			/* for the kernel: to be woken; read without a lock */
	bool busy;			/* with a request; the thread's own */
	bool asking;			/* for a page: the slot is the kernel's; the thread's own */
	bool stopped;			/* by a signal, and the kernel knows; the thread's own */
	bool leaving;			/* exits or executes a program, others stay; realm_lock */
	struct crtos_file *heir;	/* see crtos_thread_bequeath(); under realm_lock */
	struct rcu_head rcu;
	struct crtos_request request;	/* the thread's own */
};

/* realm.c */
int crtos_realm_create(struct crtos_cell *cell);
void crtos_realm_start(void);
void crtos_realm_stop(void);
bool crtos_realm_empty(bool force, bool killable);
bool crtos_realm_ask_end(void);
bool crtos_realm_seal(void);
void crtos_realm_reopen(void);
void crtos_realm_destroy(void);
void crtos_realm_lock(void);
void crtos_realm_unlock(void);
struct crtos_realm *crtos_realm_get(void);
struct crtos_realm *crtos_realm_kept(void);
bool crtos_realm_ask(struct crtos_realm *realm, struct crtos_question *question);
bool crtos_realm_ready(struct crtos_realm *realm);
struct crtos_realm *crtos_realm_alive(void);
u32 crtos_realm_processes(void);
void crtos_realm_ring(struct crtos_realm *realm, u32 slot);
void crtos_realm_doorbell(void);
void crtos_realm_clock_set(void);
bool crtos_realm_is_shadow(void);
int crtos_trace(struct crtos_file *file, unsigned long what);

/* wishes.c */
void crtos_wishes_store(struct crtos_realm *realm);
int crtos_wish_add(struct crtos_file *file, u16 function, dev_t number, u32 group,
		   u32 line, const char *description, const struct crtos_device_memory *memory);
s64 crtos_wish_registers(struct crtos_realm *realm, u64 start, u64 size, u64 *address);
bool crtos_wish_ports(struct crtos_realm *realm, const struct file *file, u64 *word);
void crtos_wish_drop(u16 function, const struct crtos_device_memory *memory);
int crtos_wish_end(struct crtos_file *file, u16 function, const char *name);

/* process.c */
int crtos_spawn(struct crtos_file *file, const struct path *path,
		struct crtos_spawn __user *user);
struct crtos_process *crtos_file_process(struct crtos_file *file);
bool crtos_process_enter(struct crtos_process *process);
void crtos_process_leave(struct crtos_process *process);
void crtos_process_end(struct crtos_process *process);
void crtos_process_over(struct crtos_process *process);
void crtos_process_look(struct crtos_process *process);
void crtos_process_put(struct crtos_process *process);

/* Where the mappings of a process are. */
static inline struct address_space *crtos_process_mapping(const struct crtos_process *process)
{
	return d_inode(process->path.dentry)->i_mapping;
}

/* thread.c */
struct crtos_thread *crtos_thread_add(struct crtos_process *process, u32 state, u32 parent,
				      u32 heritage);
int crtos_thread_create(struct crtos_file *file, u64 argument);
struct crtos_thread *crtos_thread_current(struct crtos_process *process);
int crtos_thread_wait(struct crtos_thread *thread, unsigned int mode, u32 state);
bool crtos_thread_left(struct crtos_thread *thread);
void crtos_thread_remove(struct crtos_thread *thread);
void crtos_threads_remove(struct crtos_process *process);
bool crtos_threads_remove_leaving(struct crtos_process *process);
void crtos_threads_leave(struct crtos_process *process);
void crtos_thread_bequeath(struct crtos_process *process, struct crtos_file *heir);
void crtos_thread_disinherit(struct crtos_thread *thread);
void crtos_heir_decided(struct crtos_file *heir);
bool crtos_threads_have_heir(struct crtos_process *process);
void crtos_threads_tell_leaving(struct crtos_process *process);
bool crtos_threads_run(struct crtos_process *process);
void crtos_threads_wake(struct crtos_process *process);

/* remote.c */
int crtos_remote(struct crtos_file *file, struct crtos_remote __user *user);
int crtos_signal(struct crtos_file *file, const void __user *user);

/* vouch.c */
bool crtos_vouches(u32 op);
int crtos_vouch(struct crtos_thread *thread, u64 words[6], s64 *result);
int crtos_kept_copy(struct crtos_process *process, struct crtos_process *parent);
int crtos_kept_watch(struct crtos_process *process);
void crtos_kept_free(struct crtos_process *process);

/* identity.c */
int crtos_identify(struct file *file, const struct kstat *status, u64 words[3]);
int crtos_identity_init(void);
void crtos_identity_exit(void);

/* share.c */
struct crtos_watch;
bool crtos_sharable(const struct file *file);
struct crtos_watch *crtos_watch_begin(struct crtos_realm *realm, const struct file *file,
				      u64 start, u64 length, pgoff_t first);
struct crtos_watch *crtos_watch_copy(const struct crtos_watch *watch);
void crtos_watch_get(struct crtos_watch *watch);
void crtos_watch_put(struct crtos_watch *watch);
s64 crtos_share(struct crtos_watch *watch, struct file *file, const struct crtos_request *request);
struct page *crtos_place_page(struct crtos_realm *realm, u32 number);
void crtos_places_doorbell(struct crtos_realm *realm);
int crtos_places_init(struct crtos_realm *realm);
void crtos_places_release(struct crtos_realm *realm);
void crtos_places_free(struct crtos_realm *realm);

/* futexes.c */
void crtos_futexes_doorbell(struct crtos_realm *realm);
void crtos_futexes_init(struct crtos_realm *realm);
void crtos_futexes_free(struct crtos_realm *realm);

/* successors.c */
s64 crtos_successor_keep(struct crtos_realm *realm, struct file *file, u64 number);
s64 crtos_successor_take(struct crtos_realm *realm, u64 number);
void crtos_successors_doorbell(struct crtos_realm *realm);
void crtos_successors_init(struct crtos_realm *realm);
void crtos_successors_release(struct crtos_realm *realm);
void crtos_successors_free(struct crtos_realm *realm);

/* fault.c */
struct page *crtos_pool_page(struct crtos_realm *realm, u64 offset);
int crtos_mmap(struct file *file, struct vm_area_struct *vma);

/* revocation.c */
bool crtos_page_pinned(struct page *page);
u32 crtos_revocations_posted(struct crtos_realm *realm);
void crtos_revocations_run(struct crtos_process *process);
bool crtos_revocations_pending(struct crtos_process *process);
bool crtos_pages_pinned(struct crtos_process *process);
void crtos_revocations_finish(struct crtos_process *process);
void crtos_revocations_orphans(struct crtos_realm *realm);

/* clock.c */
void crtos_clock_start(struct crtos_realm *realm);
void crtos_clock_update(struct crtos_realm *realm);
void crtos_clock_republish(struct crtos_realm *realm);
int crtos_clock_init(void);
void crtos_clock_exit(void);

/* ethernet.c */
void crtos_ethernet_start(struct crtos_realm *realm);
void crtos_ethernet_changed(struct crtos_realm *realm);
void crtos_ethernet_doorbell(struct crtos_realm *realm);
void crtos_ethernet_remove(struct crtos_realm *realm);

/* last_words.c */
int crtos_last_words_init(void);
void crtos_last_words_exit(void);

#endif /* CRTOS_REALM_H */
