// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is told to the real-time kernel about files, and read of them, for all
 * programs of the realm, and what a program is permitted. The shadow, over which
 * its owner has power, takes no part in it: these requests are carried out here, in
 * the shadow thread's context.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/stat.h>
#include <linux/string.h>

#include "crtos.h"
#include "realm.h"

/**
 * crtos_vouches() - is a request carried out by the module?
 * @op: CRTOS_OP_*
 */
bool crtos_vouches(u32 op)
{
	switch (op) {
	case CRTOS_OP_STATUS:
	case CRTOS_OP_SCHEDULING:
	case CRTOS_OP_READ:
	case CRTOS_OP_KEEP:
	case CRTOS_OP_LET_GO:
	case CRTOS_OP_IS_CAPABLE:
	case CRTOS_OP_SEGMENT:
		return true;
	}
	return false;
}

/* The file of a descriptor of the calling shadow; NULL if there is none that is the program's. */
static struct file *program_file(u64 descriptor)
{
	struct file *file = fget((u32)descriptor);

	if (file && file->f_op == crtos_device.fops) {
		fput(file);
		return NULL;
	}
	return file;
}

static int get_status(struct file *file, struct kstat *status)
{
	return vfs_getattr(&file->f_path, status, STATX_BASIC_STATS, AT_STATX_SYNC_AS_STAT);
}

/* As fstat(2) tells it. */
static u64 device_number(const struct kstat *status)
{
	return new_encode_dev(status->dev);
}

/* kernel_read() warns of files that it cannot read. */
static bool is_readable(const struct file *file)
{
	return (file->f_mode & FMODE_READ) && file->f_op->read_iter && !file->f_op->read;
}

/*
 * Whoever serves a file system in user space, or has mounted it in a user namespace of
 * their own, chooses what its files have been and will be.
 */
static bool is_trusted(const struct file *file)
{
	const struct super_block *sb = file_inode(file)->i_sb;

	return sb->s_user_ns == &init_user_ns && sb->s_magic != FUSE_SUPER_MAGIC;
}

static s64 tell_status(const struct crtos_request *request, u64 words[6])
{
	struct file *file = program_file(request->args[0]);
	struct kstat status;
	int result;

	if (!file)
		return -EBADF;
	result = get_status(file, &status);
	if (!result) {
		result = file->f_flags;
		words[0] = device_number(&status);
		words[1] = status.ino;
		words[2] = status.size;
		words[3] = status.ctime.tv_sec;
		words[4] = status.ctime.tv_nsec;
		words[5] = status.mode | (status.blocks ? 0 : CRTOS_STATUS_EMPTY) |
			   (is_readable(file) ? CRTOS_STATUS_READABLE : 0) |
			   (is_trusted(file) ? CRTOS_STATUS_TRUSTED : 0);
	}
	fput(file);
	return result;
}

/* The file of a descriptor, or the one that is kept for a mirror. */
static struct file *source_file(struct crtos_process *process, u64 source)
{
	struct file *file;

	if (source <= U32_MAX)
		return program_file(source);
	crtos_realm_lock();
	file = xa_load(&process->kept, source >> PAGE_SHIFT);
	if (file)
		get_file(file);
	crtos_realm_unlock();
	return file;
}

/* Fills pages of the pool. Returns how many bytes there were, or an error if none. */
static s64 read_pages(struct crtos_realm *realm, struct file *file, u64 at, u64 length, u64 list)
{
	u64 size = realm->cell->pool.count * CRTOS_LARGE_PAGE_SIZE, offset, done = 0;
	const u64 *pages;

	if (!length || length > CRTOS_MOST_READ_PAGES * PAGE_SIZE || at > LLONG_MAX - length ||
	    !crtos_channel_pool_page(list, size, &offset))
		return -EINVAL;
	pages = page_address(crtos_pool_page(realm, offset));
	while (done < length) {
		u64 count = min_t(u64, length - done, PAGE_SIZE);
		loff_t position = at + done;
		ssize_t result;

		if (!crtos_channel_pool_page(READ_ONCE(pages[done / PAGE_SIZE]), size, &offset))
			return -EINVAL;
		result = kernel_read(file, page_address(crtos_pool_page(realm, offset)), count,
				     &position);
		if (result < 0)
			return done ? done : result;
		done += result;
		if (result < count)
			break;
		cond_resched();
	}
	return done;
}

static s64 read_file(struct crtos_process *process, const struct crtos_request *request)
{
	struct file *file = source_file(process, request->args[0]);
	struct kstat status;
	s64 result;

	if (!file)
		return -EBADF;
	result = get_status(file, &status);
	if (!result && (device_number(&status) != request->args[4] ||
			status.ino != request->args[5]))
		result = -ESTALE;
	if (!result && !is_readable(file))
		result = -EINVAL;
	if (!result)
		result = read_pages(process->realm, file, request->args[1], request->args[2],
				    request->args[3]);
	fput(file);
	return result;
}

static s64 keep_file(struct crtos_process *process, u64 descriptor, u64 mirror)
{
	struct file *file = program_file(descriptor);
	void *before;

	if (!file)
		return -EBADF;
	crtos_realm_lock();
	before = xa_store(&process->kept, mirror >> PAGE_SHIFT, file, GFP_KERNEL);
	crtos_realm_unlock();
	if (xa_is_err(before)) {
		fput(file);
		return xa_err(before);
	}
	if (before)
		fput(before);
	return 0;
}

static s64 let_go(struct crtos_process *process, u64 mirror)
{
	struct file *file;

	crtos_realm_lock();
	file = xa_erase(&process->kept, mirror >> PAGE_SHIFT);
	crtos_realm_unlock();
	if (file)
		fput(file);
	return 0;
}

/*
 * Which segment of System V shared memory is attached at an address of the shadow. Its
 * file has a name that no other file of that file system can have, and its number is that
 * of the segment; another namespace's segment of that number has another generation,
 * which is random.
 */
static s64 tell_segment(u64 address, u64 words[6])
{
	struct vm_area_struct *vma;
	struct file *file = NULL;
	struct inode *inode;
	s64 result = -EINVAL;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = vma_lookup(current->mm, address);
	if (vma && vma->vm_start == address && vma->vm_file && !vma->vm_pgoff)
		file = get_file(vma->vm_file);
	mmap_read_unlock(current->mm);
	if (!file)
		return -EINVAL;
	inode = file_inode(file);
	if (!strncmp(file->f_path.dentry->d_name.name, "SYSV", 4) &&
	    (inode->i_sb->s_flags & SB_KERNMOUNT)) {
		words[0] = (u64)inode->i_generation << 32 | new_encode_dev(inode->i_sb->s_dev);
		words[1] = inode->i_ino;
		words[2] = i_size_read(inode);
		result = !!(file->f_mode & FMODE_WRITE);
	}
	fput(file);
	return result;
}

/* The scheduling of a thread of the caller's namespace, 0 for the caller, as Operation tells. */
static s64 tell_scheduling(u64 tid)
{
	struct task_struct *task;
	s64 result = -ESRCH;

	rcu_read_lock();
	task = tid ? pid_task(find_vpid(tid), PIDTYPE_PID) : current;
	if (task)
		result = task->policy | task->rt_priority << 8 |
			 (u64)(task_nice(task) + 20) << 16 |
			 (u64)task->sched_reset_on_fork << 24;
	rcu_read_unlock();
	return result;
}

/**
 * crtos_vouch() - carry out the request of a thread
 * @thread: the calling task's thread, with a request for which crtos_vouches() is true
 * @words: what goes into the reply beside the result
 * @result: where the result goes
 *
 * Context: The calling task is the shadow thread. May sleep.
 * Return: 0, or -ERESTARTNOINTR when a signal has to be taken first.
 */
int crtos_vouch(struct crtos_thread *thread, u64 words[6], s64 *result)
{
	const struct crtos_request *request = &thread->request;
	struct crtos_process *process = thread->process;

	switch (request->op) {
	case CRTOS_OP_STATUS:
		*result = tell_status(request, words);
		break;
	case CRTOS_OP_READ:
		*result = read_file(process, request);
		break;
	case CRTOS_OP_KEEP:
		*result = keep_file(process, request->args[0], request->args[1]);
		break;
	case CRTOS_OP_LET_GO:
		*result = let_go(process, request->args[0]);
		break;
	case CRTOS_OP_SEGMENT:
		*result = tell_segment(request->args[0], words);
		break;
	case CRTOS_OP_SCHEDULING:
		*result = tell_scheduling(request->args[0]);
		break;
	default:
		*result = request->args[0] <= CAP_LAST_CAP && capable(request->args[0]) ?
			  0 : -EPERM;
	}
	/* File systems may give up for a signal: the request is carried out anew after that. */
	if ((*result == -EINTR || *result == -ERESTARTSYS) && signal_pending(current))
		return -ERESTARTNOINTR;
	return 0;
}

/**
 * crtos_kept_copy() - keep for a process what is kept for its parent
 * @process: the process
 * @parent: the one that forked it
 *
 * Context: Under realm_lock; may sleep.
 * Return: 0 or -ENOMEM.
 */
int crtos_kept_copy(struct crtos_process *process, struct crtos_process *parent)
{
	unsigned long index;
	struct file *file;

	xa_for_each(&parent->kept, index, file) {
		int error = xa_err(xa_store(&process->kept, index, file, GFP_KERNEL));

		if (error)
			return error;
		get_file(file);
	}
	return 0;
}

/**
 * crtos_kept_free() - let all files of a process go
 * @process: the process, of which no call is made any more
 *
 * Context: May sleep.
 */
void crtos_kept_free(struct crtos_process *process)
{
	unsigned long index;
	struct file *file;

	xa_for_each(&process->kept, index, file)
		fput(file);
	xa_destroy(&process->kept);
}
