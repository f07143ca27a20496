// SPDX-License-Identifier: GPL-2.0-only
/*
 * By which words the real-time kernel knows a file: those of no other file, ever. The
 * number of a device comes again when a file system is mounted after another one is
 * gone, so each file system gets a number here. A mark on its root, of which nobody is
 * told anything, keeps the number until the file system is gone: Linux takes the mark
 * away then.
 */
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/kdev_t.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stat.h>

#include "compat.h"
#include "crtos.h"
#include "realm.h"

/* A file system that has a number. */
struct numbered {
	struct fsnotify_mark mark;
	struct list_head link;
	u64 number;
};

static struct fsnotify_group *group;
static DEFINE_SPINLOCK(lock);
static LIST_HEAD(all);		/* under lock */
static u64 last_number;		/* under lock */

/* The mark goes: the caller of this has a reference to it. */
static void forget(struct fsnotify_mark *mark, struct fsnotify_group *group)
{
	struct numbered *numbered = container_of(mark, struct numbered, mark);

	spin_lock(&lock);
	list_del_init(&numbered->link);
	spin_unlock(&lock);
}

static void free_numbered(struct fsnotify_mark *mark)
{
	kfree(container_of(mark, struct numbered, mark));
}

/* Never called: the marks ask for no event. */
static int ignore_event(struct fsnotify_mark *mark, u32 mask, struct inode *inode,
			struct inode *dir, const struct qstr *name, u32 cookie)
{
	return 0;
}

static const struct fsnotify_ops operations = {
	.handle_inode_event = ignore_event,
	.freeing_mark = forget,
	.free_mark = free_numbered,
};

/* Gives a file system a number. -EEXIST: it has got one meanwhile. */
static int give_number(struct inode *root)
{
	struct numbered *numbered = kzalloc(sizeof(*numbered), GFP_KERNEL);
	int error;

	if (!numbered)
		return -ENOMEM;
	fsnotify_init_mark(&numbered->mark, group);
	INIT_LIST_HEAD(&numbered->link);
	spin_lock(&lock);
	numbered->number = ++last_number;
	spin_unlock(&lock);
	error = fsnotify_add_inode_mark(&numbered->mark, root, 0);
	if (!error) {
		spin_lock(&lock);
		list_add(&numbered->link, &all);
		spin_unlock(&lock);
	}
	fsnotify_put_mark(&numbered->mark);
	return error;
}

/* The number of a mounted file system, or of one that is still in use. */
static int get_number(struct super_block *sb, u64 *number)
{
	struct inode *root = d_inode(sb->s_root);
	struct fsnotify_mark *mark;
	int error;

	while (!(mark = crtos_find_inode_mark(root, group))) {
		error = give_number(root);
		if (error && error != -EEXIST)
			return error;
	}
	*number = container_of(mark, struct numbered, mark)->number;
	fsnotify_put_mark(mark);
	return 0;
}

/**
 * crtos_identify() - tell which file that is
 * @file: the file, which stays open
 * @status: what fstat(2) tells of it
 * @words: three words that no other regular file has had since the module was loaded
 *
 * An inode's number comes again with another generation, where the file system has
 * generations. Elsewhere it does not come again as long as the file is open.
 *
 * Context: May sleep.
 * Return: 0 or a negative error.
 */
int crtos_identify(struct file *file, const struct kstat *status, u64 words[3])
{
	struct inode *inode = file_inode(file);

	words[0] = 0;
	words[1] = (u64)inode->i_generation << 32 | new_encode_dev(status->dev);
	words[2] = status->ino;
	return S_ISREG(status->mode) ? get_number(inode->i_sb, &words[0]) : 0;
}

/**
 * crtos_identity_init() - prepare to give numbers
 *
 * Return: 0 or a negative error.
 */
int crtos_identity_init(void)
{
	group = fsnotify_alloc_group(&operations, 0);
	return PTR_ERR_OR_ZERO(group);
}

/**
 * crtos_identity_exit() - take all numbers back; nobody asks for one any more
 */
void crtos_identity_exit(void)
{
	struct numbered *numbered;

	for (;;) {
		spin_lock(&lock);
		numbered = list_first_entry_or_null(&all, struct numbered, link);
		/* As long as it is listed, forget() is still to come. */
		if (numbered)
			refcount_inc(&numbered->mark.refcnt);
		spin_unlock(&lock);
		if (!numbered)
			break;
		fsnotify_destroy_mark(&numbered->mark, group);
		fsnotify_put_mark(&numbered->mark);
		cond_resched();
	}
	fsnotify_put_group(group);
	fsnotify_wait_marks_destroyed();
}
