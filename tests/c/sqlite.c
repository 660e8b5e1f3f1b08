/* A real, compute-bound program: SQLite with a database in memory. */
#include "script.h"
#include "sqlite3.h"

#define QUIET __attribute__((no_instrument_function))

QUIET static int row(void *sum, int count, char **values, char **names)
{
    (void)names;
    for (int i = 0; i < count; i++)
        *(unsigned *)sum = *(unsigned *)sum * 31 + (unsigned)(values[i] ? atoi(values[i]) : 0);
    return 0;
}

QUIET int main(int count, char **arguments)
{
    static const char *const work[] = {
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " INSERT INTO t SELECT i, i * 7919 % 10007, 'text ' || (i * 31 % 997) FROM n",
        "CREATE INDEX t_b ON t(b)",
        "SELECT count(*), sum(b) FROM t WHERE c LIKE '%9_%'",
        "SELECT c, count(*) FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT sum(x.b * y.a % 13) FROM t x JOIN t y ON y.b = x.a WHERE x.a < 9000",
        "SELECT sum(length(replace(c, 't', 'tt'))) FROM t",
        "UPDATE t SET c = c || b WHERE b % 3 = 0",
        "DELETE FROM t WHERE a % 5 = 0",
        /* These statements make functions run long in each call. */
        "CREATE TABLE l(c TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
        " INSERT INTO l SELECT '[' || replace(hex(zeroblob(1000)), '00', i || ',') || '1]' FROM n",
        "SELECT sum(length(c)), sum(length(upper(c))) FROM l",
        "SELECT sum(length(hex(c))), sum(length(quote(c))) FROM l",
        "SELECT sum(json_valid(c)), sum(json_array_length(c)) FROM l",
    };
    unsigned sum = 0;
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    reach("begun");
    for (int round = 0; round < rounds; round++) {
        sqlite3 *base;
        EXPECT(sqlite3_open(":memory:", &base) == SQLITE_OK);
        for (unsigned i = 0; i < sizeof work / sizeof *work; i++)
            EXPECT(sqlite3_exec(base, work[i], row, &sum, NULL) == SQLITE_OK);
        sqlite3_close(base);
    }
    say("sum %u", sum);
    reach("done");
    return 0;
}
