/* A program with points of its own, and annotations for NVTX. */
#include <nvtx3/nvToolsExt.h>
#include <pfp.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < rounds; i++) {
        PFP_SCOPE("own around");
        nvtxRangePushA("annotated");
        {
            PFP_SCOPE("own within");
        }
        nvtxRangePop();
    }
    return 0;
}
