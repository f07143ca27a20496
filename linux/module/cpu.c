// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs change hands by Linux's CPU hotplug: a cell's CPUs are offline in Linux,
 * and Linux cannot bring a CPU online that runs outside the hypervisor.
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
		pr_info("crtos: CPU %u stays offline: it was offline when the hypervisor was launched; disable the hypervisor first\n",
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
				    "there is no CPU %u: this machine has CPUs %*pbl",
				    cpu, cpumask_pr_args(cpu_present_mask));
	if (cpu == 0)
		return crtos_refuse(file, -EPERM,
				    "CPU 0 was asked for, but Linux cannot give up the boot CPU: choose another one");
	if (cpumask_test_cpu(cpu, &crtos.cell_cpus))
		return crtos_refuse(file, -EBUSY,
				    "CPU %u belongs to cell '%s': choose another one or destroy that cell",
				    cpu, cell_with_cpu(cpu));
	if (crtos_doorbell_wanted(cpu))
		return crtos_refuse(file, -EBUSY,
				    "calls of another cell interrupt CPU %u in Linux: choose another one or destroy that cell",
				    cpu);
	if (!cpumask_test_cpu(cpu, &crtos.held))
		return crtos_refuse(file, -EBUSY,
				    "CPU %u was offline when the hypervisor was launched: disable it, bring the CPU online (chcpu -e %u), enable it",
				    cpu, cpu);
	if (!cpu_online(cpu))
		return crtos_refuse(file, -EBUSY,
				    "CPU %u is offline in Linux: bring it online first (chcpu -e %u)",
				    cpu, cpu);
	return 0;
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
					    "Linux does not give up CPU %u (error %d): something needs it, such as SCHED_DEADLINE tasks, isolation or an interrupt bound to it",
					    cpu, error);
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
			pr_err("crtos: CPU %u does not come back online (error %d): try chcpu -e %u\n",
			       cpu, error, cpu);
	}
}
