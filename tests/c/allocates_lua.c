/* Runs a program in Lua: `allocates-lua N` repeats the work N times. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <string.h>

#include "rounds.h"

static void work(void)
{
    static const char program[] =
        "local words, sum = {}, 0\n"
        "for i = 1, 400 do\n"
        "    local word = ('word %d'):format(i * 7919 % 1009)\n"
        "    words[#words + 1] = word:rep(i % 4 + 1, ', ')\n"
        "end\n"
        "table.sort(words)\n"
        "local add = coroutine.wrap(function(word)\n"
        "    while true do\n"
        "        for number in word:gmatch('%d+') do sum = sum + number end\n"
        "        word = coroutine.yield()\n"
        "    end\n"
        "end)\n"
        "for _, word in ipairs(words) do add(word) end\n"
        "return sum // 1, table.concat(words, '\\n')\n";
    lua_State *lua = luaL_newstate();
    EXPECT(lua != NULL);
    luaL_openlibs(lua);
    EXPECT(luaL_dostring(lua, program) == LUA_OK);
    EXPECT(lua_tointeger(lua, 1) > 400);
    EXPECT(strlen(lua_tostring(lua, 2)) > 4000);
    lua_close(lua);
}

int main(int count, char **arguments)
{
    return rounds(count, arguments, work);
}
