/* Uses a database of SQLite in memory: `allocates-sqlite N` repeats the work N times. */
#include <sqlite3.h>

#include "rounds.h"

static int row(void *rows, int count, char **values, char **names)
{
    (void)count, (void)values, (void)names;
    ++*(int *)rows;
    return 0;
}

static void work(void)
{
    static const char *const statements[] = {
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        " INSERT INTO t SELECT i, i * 7919 % 10007, 'text ' || (i * 31 % 97) FROM n",
        "CREATE INDEX t_b ON t(b)",
        "SELECT c, count(*) FROM t GROUP BY c ORDER BY 2 DESC, 1",
        "SELECT x.c, y.c FROM t x JOIN t y ON y.b = x.a WHERE x.c LIKE '%9%'",
        "UPDATE t SET c = c || replace(hex(zeroblob(100)), '00', b) WHERE b % 3 = 0",
        "SELECT json_group_array(c) FROM t",
        "DELETE FROM t WHERE a % 5 = 0",
        "VACUUM",
    };
    int rows = 0;
    sqlite3 *base;
    EXPECT(sqlite3_open(":memory:", &base) == SQLITE_OK);
    for (unsigned i = 0; i < sizeof statements / sizeof *statements; i++)
        EXPECT(sqlite3_exec(base, statements[i], row, &rows, NULL) == SQLITE_OK);
    EXPECT(sqlite3_close(base) == SQLITE_OK);
    EXPECT(rows > 97);
}

int main(int count, char **arguments)
{
    return rounds(count, arguments, work);
}
