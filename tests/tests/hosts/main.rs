//! Programs that link the library: they notice nothing of it, even where the system refuses
//! something, and in C and C++.

mod beside_locks;
mod c_functions;
mod c_header;
mod c_interface;
mod c_manners;
mod c_many_points;
mod c_packaging;
mod c_parallel;
mod c_programs;
mod c_rules;
mod c_sanitizers;
mod c_schedulers;
mod c_small_stack;
mod c_sqlite;
mod c_waits;
mod closed;
mod compiled_out;
mod confined;
mod copies;
mod cpu_limit;
mod dumps;
mod library_manners;
mod loaded;
mod memory_limit;
mod no_heap;
mod no_space;
mod preloaded;
mod refused_calls;
mod traps;
