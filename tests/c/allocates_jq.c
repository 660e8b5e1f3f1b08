/* Filters JSON with jq: `allocates-jq N` repeats the work N times. */
#include <jq.h>

#include "rounds.h"

static void work(void)
{
    static const char filter[] =
        "[range(300) | {key: \"k\\(. % 50)\", value: (. * 7919 % 1009)}]"
        " | group_by(.key) | map({(.[0].key): (map(.value) | add)}) | add"
        " | to_entries | sort_by(.value) | .[] | tojson | fromjson";
    int results = 0;
    jq_state *jq = jq_init();
    EXPECT(jq != NULL);
    EXPECT(jq_compile(jq, filter));
    jq_start(jq, jv_null(), 0);
    for (;;) {
        jv result = jq_next(jq);
        if (!jv_is_valid(result)) {
            jv_free(result);
            break;
        }
        results++;
        jv_free(result);
    }
    jq_teardown(&jq);
    EXPECT(results == 50);
}

int main(int count, char **arguments)
{
    return rounds(count, arguments, work);
}
