/* Another tool for OpenMP, which counts regions. At the end of the runtime it writes "regions N"
 * to the file that OMP_COUNTER names. */
#include <omp-tools.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long regions;

static void parallel_begin(ompt_data_t *task, const ompt_frame_t *frame, ompt_data_t *parallel,
                           unsigned requested, int flags, const void *code)
{
    (void)task, (void)frame, (void)parallel, (void)requested, (void)flags, (void)code;
    __atomic_fetch_add(&regions, 1, __ATOMIC_RELAXED);
}

static int initialize(ompt_function_lookup_t lookup, int device, ompt_data_t *data)
{
    ompt_set_callback_t set = (ompt_set_callback_t)lookup("ompt_set_callback");
    (void)device, (void)data;
    return set(ompt_callback_parallel_begin, (ompt_callback_t)parallel_begin) == ompt_set_always;
}

static void finalize(ompt_data_t *data)
{
    const char *name = getenv("OMP_COUNTER");
    FILE *file = name ? fopen(name, "w") : NULL;
    (void)data;
    if (file) {
        fprintf(file, "regions %lu\n", regions);
        fclose(file);
    }
}

ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *runtime)
{
    static ompt_start_tool_result_t result = {initialize, finalize, {0}};
    (void)version, (void)runtime;
    return &result;
}
