// Kernels, regions, fences and copies of Kokkos. Prints their results.
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
    Kokkos::initialize(argc, argv);
    {
        Kokkos::View<double *> values("values", 1000);
        Kokkos::View<double *> copy("copy", 1000);
        double sum = 0;
        for (int round = 0; round < rounds; round++) {
            Kokkos::Profiling::pushRegion("round");
            Kokkos::parallel_for("fill", 1000, KOKKOS_LAMBDA(int i) { values(i) = i; });
            Kokkos::parallel_reduce(
                "add", 1000, KOKKOS_LAMBDA(int i, double &part) { part += values(i); }, sum);
            Kokkos::parallel_scan(
                "sum up", 1000, KOKKOS_LAMBDA(int i, double &part, bool last) {
                    part += values(i);
                    if (last)
                        copy(i) = part;
                });
            Kokkos::deep_copy(copy, values);
            Kokkos::fence();
            Kokkos::Profiling::popRegion();
        }
        std::printf("sum %.0f\n", sum);
    }
    Kokkos::finalize();
}
