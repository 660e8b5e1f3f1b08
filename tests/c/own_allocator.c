/* A program with an allocator of its own, which calls pfp_alloc and pfp_free. */
#include <pfp.h>
#include <stdlib.h>

#include "script.h"

static unsigned char heap[1 << 20];
static size_t used;

static void *take(size_t bytes)
{
    void *memory = &heap[used % (sizeof heap / 2)];
    used += bytes;
    pfp_alloc(bytes);
    return memory;
}

int main(void)
{
    pfp_point_t *outer = pfp_point("outer", __FILE__, __LINE__);
    pfp_point_t *inner = pfp_point("inner", __FILE__, __LINE__);
    EXPECT(pfp_set_counting_allocs(outer, 1) == PFP_OK);
    EXPECT(pfp_set_counting_allocs(inner, 1) == PFP_OK);
    EXPECT(pfp_set_counting_allocs(NULL, 1) == PFP_ENULL);
    take(7777); /* before any region */
    for (size_t round = 1; round <= 1000; round++) {
        EXPECT(pfp_begin(outer) == PFP_OK);
        take(round);
        EXPECT(pfp_begin(inner) == PFP_OK);
        take(3);
        take(4);
        pfp_free(5);
        EXPECT(pfp_end(inner, 0) == PFP_OK);
        pfp_free(round);
        EXPECT(pfp_end(outer, 0) == PFP_OK);
    }
    /* This does not count: the library's malloc is not this program's allocator. */
    EXPECT(pfp_begin(outer) == PFP_OK);
    free(malloc(99));
    EXPECT(pfp_end(outer, 0) == PFP_OK);
    EXPECT(pfp_set_counting_allocs(inner, 0) == PFP_OK);
    /* A region that does not count adds to the one around it. */
    EXPECT(pfp_begin(outer) == PFP_OK);
    EXPECT(pfp_begin(inner) == PFP_OK);
    take(1);
    EXPECT(pfp_end(inner, 0) == PFP_OK);
    EXPECT(pfp_end(outer, 0) == PFP_OK);
    return 0;
}
