/*
 * The Lorenz system on several OpenMP threads, with a reduction: each thread integrates
 * its share of the trajectories, and their ends are summed. Both regions state the bytes
 * that they move and the operations that they compute, so the program can print its
 * figures like the timers of HPC programs. `probe/timing/examples/lorenz.rs` does this in
 * Rust, and computes the same sums.
 *
 *     c++ -O2 -fopenmp -ffp-contract=off lorenz.cpp $(pkg-config --cflags --libs pfp)
 *
 * lorenz [THREADS] [TRAJECTORIES] [STEPS] [--hold]: with --hold, it prints its table and
 * then waits until its standard input ends, so that a viewer can show it.
 */
#include <pfp.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct state {
    double x, y, z;
};

static const double STEP = 0.001;

/* Floating-point operations of a step: four slopes of 8 each, three moves along a slope
 * with 2 for each of 3 numbers, and finally 7 for each of 3 numbers. The compiler
 * evaluates constants such as STEP / 2.0. */
static const unsigned long FLOPS = 4 * 8 + 3 * 3 * 2 + 3 * 7;
/* Bytes of a step, which reads a state and writes one. */
static const unsigned long BYTES = 2 * sizeof(state);

/* The classic parameters: sigma 10, rho 28, beta 8/3. */
static state slope(const state &s)
{
    state d = {10.0 * (s.y - s.x), s.x * (28.0 - s.z) - s.y, s.x * s.y - 8.0 / 3.0 * s.z};
    return d;
}

static state along(const state &s, const state &d, double time)
{
    state end = {s.x + time * d.x, s.y + time * d.y, s.z + time * d.z};
    return end;
}

/* A step of the classic Runge-Kutta method. */
static state step(const state &s)
{
    state a = slope(s);
    state b = slope(along(s, a, STEP / 2.0));
    state c = slope(along(s, b, STEP / 2.0));
    state d = slope(along(s, c, STEP));
    state end = {s.x + STEP / 6.0 * (a.x + 2.0 * b.x + 2.0 * c.x + d.x),
                 s.y + STEP / 6.0 * (a.y + 2.0 * b.y + 2.0 * c.y + d.y),
                 s.z + STEP / 6.0 * (a.z + 2.0 * b.z + 2.0 * c.z + d.z)};
    return end;
}

static state trajectory(long number, long steps)
{
    PFP_METERED("trajectory", (unsigned long)steps * BYTES, (unsigned long)steps * FLOPS);
    state s = {1.0 + (double)number * 1e-3, 1.0, 1.0};
    for (long i = 0; i < steps; i++)
        s = step(s);
    return s;
}

int main(int argc, char **argv)
{
    long numbers[3] = {4, 64, 2000};
    bool hold = false;
    double x = 0, y = 0, z = 0, on_cpu_ms = 0;

    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--hold") == 0)
            hold = true;
        else if (i > 3 || (numbers[i - 1] = std::atol(argv[i])) <= 0)
            return std::fprintf(stderr, "lorenz [THREADS] [TRAJECTORIES] [STEPS] [--hold]\n"), 1;
    }
    /* Initializes pfp now, so that no trajectory includes it. */
    (void)pfp_init();
    long trajectories = numbers[1], steps = numbers[2];

    std::vector<state> ends((size_t)trajectories);
#pragma omp parallel num_threads((int)numbers[0]) reduction(+ : on_cpu_ms)
    {
        pfp::cpu_timer timer;
        timer.start();
#pragma omp for schedule(static) nowait
        for (long number = 0; number < trajectories; number++)
            ends[(size_t)number] = trajectory(number, steps);
        timer.stop();
        on_cpu_ms += timer.on_cpu_ms();
    }
    {
        PFP_METERED("reduction", ends.size() * sizeof(state), ends.size() * 3);
#pragma omp parallel for num_threads((int)numbers[0]) schedule(static) reduction(+ : x, y, z)
        for (long number = 0; number < trajectories; number++) {
            const state &end = ends[(size_t)number];
            x += end.x;
            y += end.y;
            z += end.z;
        }
    }
    std::printf("sum: %.9f %.9f %.9f\n", x, y, z);
    std::printf("on_cpu_ms: %.6f\n", on_cpu_ms);
    std::fflush(stdout);
    if (pfpShow(STDOUT_FILENO) != PFP_OK)
        return 1;
    if (hold) {
        std::puts("done");
        std::fflush(stdout);
        while (std::getchar() != EOF)
            ;
    }
    return 0;
}
