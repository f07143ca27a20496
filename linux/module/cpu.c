// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs change hands by Linux's CPU hotplug: a cell's CPUs are offline in Linux. All CPUs are
 * online for the launch, and Linux cannot bring one online that was added later.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>

#include "crtos.h"

static enum cpuhp_state prepare_state;

static const char *cell_with_cpu(unsigned int cpu)
{
	int i, j;

	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		for (j = 0; crtos.cells[i] && j < crtos.cells[i]->cpu_count; j++)
			if (crtos.cells[i]->cpus[j] == cpu)
				return crtos.cells[i]->name;
	return "being created";
}

/*
 * Runs before Linux brings a CPU online; a refusal keeps it offline. Hotplug is locked,
 * crtos.lock is not: crtos.enabled is stored with hotplug locked (launch.c), and the
 * bits of a CPU change before whoever changes them has Linux plug or unplug it.
 */
static int prepare_cpu(unsigned int cpu)
{
	if (!READ_ONCE(crtos.enabled))
		return 0;
	if (cpumask_test_cpu(cpu, &crtos.cell_cpus)) {
		pr_info("crtos: CPU %u stays offline: it belongs to a cell; destroy the cell first\n",
			cpu);
		return -EBUSY;
	}
	if (!cpumask_test_cpu(cpu, &crtos.held)) {
		pr_info("crtos: CPU %u stays offline: it was added after the hypervisor was launched; disable the hypervisor first\n",
			cpu);
		return -EBUSY;
	}
	return 0;
}

/**
 * crtos_cpu_init() - keep CPUs of cells offline
 *
 * Return: 0 or a negative error.
 */
int crtos_cpu_init(void)
{
	int state = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "crtos:prepare",
					      prepare_cpu, NULL);

	if (state < 0)
		return state;
	prepare_state = state;
	return 0;
}

/**
 * crtos_cpu_exit() - undo crtos_cpu_init(); the hypervisor does not run
 */
void crtos_cpu_exit(void)
{
	cpuhp_remove_state_nocalls(prepare_state);
}

static int check_cpu(struct crtos_file *file, unsigned int cpu)
{
	if (cpu >= nr_cpu_ids || !cpu_present(cpu))
		return crtos_refuse(file, -ENODEV,
				    "[cpu-absent] there is no CPU %u: this machine has CPUs %*pbl",
				    cpu, cpumask_pr_args(cpu_present_mask));
	if (cpu == 0)
		return crtos_refuse(file, -EPERM,
				    "[cpu-boot] CPU 0 was asked for, but Linux cannot give up the boot CPU: choose another one");
	if (cpumask_test_cpu(cpu, &crtos.cell_cpus))
		return crtos_refuse(file, -EBUSY,
				    "[cpu-taken] CPU %u belongs to cell '%s': choose another one or destroy that cell",
				    cpu, cell_with_cpu(cpu));
	if (crtos_doorbell_wanted(cpu))
		return crtos_refuse(file, -EBUSY,
				    "[cpu-taken] calls of another cell interrupt CPU %u in Linux: choose another one or destroy that cell",
				    cpu);
	if (!cpumask_test_cpu(cpu, &crtos.held))
		return crtos_refuse(file, -EBUSY,
				    "[cpu-added] CPU %u was added after the hypervisor was launched: disable and enable it",
				    cpu);
	if (!cpu_online(cpu))
		return crtos_refuse(file, -EBUSY,
				    "[cpu-offline] CPU %u is offline in Linux: bring it online first (chcpu -e %u)",
				    cpu, cpu);
	return 0;
}

static int refuse_asleep(struct crtos_file *file, unsigned int cpu, int error)
{
	/* How Linux refuses hardware threads that nosmt keeps offline. */
	if (error != -EPERM && error != -ECANCELED)
		return crtos_refuse(file, -EBUSY,
				    "[cpus-unreachable] CPU %u is offline, so the hypervisor does not reach it, and Linux does not bring it online (%pe): do that first (chcpu -e %u)",
				    cpu, ERR_PTR(error), cpu);
	if (cpu_smt_possible())
		return crtos_refuse(file, -EBUSY,
				    "[cpus-unreachable] CPU %u is offline, so the hypervisor does not reach it: switch hardware threads on first (echo on >/sys/devices/system/cpu/smt/control), and off again afterwards",
				    cpu);
	return crtos_refuse(file, -EBUSY,
			    "[cpus-unreachable] CPU %u is offline, so the hypervisor does not reach it: boot without nosmt=force",
			    cpu);
}

/**
 * crtos_cpus_wake() - bring CPUs online for the launch, or to leave
 * @file: where a failure is explained
 * @among: the CPUs that have to be online
 * @woken: gets those that were offline, for crtos_cpus_sleep()
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then all are as they were, and @woken is empty.
 */
int crtos_cpus_wake(struct crtos_file *file, const struct cpumask *among, struct cpumask *woken)
{
	unsigned int cpu;
	int error;

	cpumask_clear(woken);
	for_each_cpu(cpu, among) {
		if (cpu_online(cpu))
			continue;
		/* One that was removed has no device any more, which add_cpu() does not check. */
		error = cpu_present(cpu) ? add_cpu(cpu) : -ENODEV;
		if (error) {
			crtos_cpus_sleep(woken);
			cpumask_clear(woken);
			return refuse_asleep(file, cpu, error);
		}
		cpumask_set_cpu(cpu, woken);
	}
	return 0;
}

/**
 * crtos_cpus_sleep() - take CPUs offline that crtos_cpus_wake() brought online
 * @woken: the CPUs
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_cpus_sleep(const struct cpumask *woken)
{
	unsigned int cpu;
	int error;

	for_each_cpu(cpu, woken) {
		error = remove_cpu(cpu);
		if (error < 0)
			pr_warn("crtos: CPU %u does not go offline again (%pe): try chcpu -d %u\n",
				cpu, ERR_PTR(error), cpu);
	}
}

/**
 * crtos_cpus_take() - take CPUs from Linux for a cell
 * @file: where a failure is explained
 * @cell: the cell, without CPUs
 * @wanted: the CPUs
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the cell has those that could be taken, and
 * crtos_cpus_return() gives them back.
 */
int crtos_cpus_take(struct crtos_file *file, struct crtos_cell *cell,
		    const struct cpumask *wanted)
{
	unsigned int cpu;
	int error;

	for_each_cpu(cpu, wanted) {
		error = check_cpu(file, cpu);
		if (error)
			return error;
	}
	for_each_cpu(cpu, wanted) {
		cpumask_set_cpu(cpu, &crtos.cell_cpus);
		error = remove_cpu(cpu);
		if (error) {
			cpumask_clear_cpu(cpu, &crtos.cell_cpus);
			return crtos_refuse(file, -EBUSY,
					    "[cpu-needed] Linux does not give up CPU %u (%pe): something needs it, such as SCHED_DEADLINE tasks, isolation or an interrupt bound to it",
					    cpu, ERR_PTR(error));
		}
		cell->cpus[cell->cpu_count++] = cpu;
	}
	return 0;
}

/**
 * crtos_cpus_return() - give the CPUs of a cell back to Linux
 * @cell: the cell
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_cpus_return(struct crtos_cell *cell)
{
	while (cell->cpu_count) {
		unsigned int cpu = cell->cpus[--cell->cpu_count];
		int error;

		cpumask_clear_cpu(cpu, &crtos.cell_cpus);
		error = add_cpu(cpu);
		if (error)
			pr_err("crtos: CPU %u does not come back online (%pe): try chcpu -e %u\n",
			       cpu, ERR_PTR(error), cpu);
	}
}
