/* Reads XML with Expat: `allocates-expat N` repeats the work N times. */
#include <expat.h>

#include "rounds.h"

static void XMLCALL begun(void *elements, const XML_Char *name, const XML_Char **attributes)
{
    (void)name, (void)attributes;
    ++*(int *)elements;
}

static void work(void)
{
    static const char head[] = "<!DOCTYPE all [<!ENTITY e 'an entity, which is replaced'>]><all>";
    static const char tail[] = "</all>";
    int elements = 0;
    XML_Parser parser = XML_ParserCreate(NULL);
    EXPECT(parser != NULL);
    XML_SetUserData(parser, &elements);
    XML_SetStartElementHandler(parser, begun);
    EXPECT(XML_Parse(parser, head, sizeof head - 1, 0) == XML_STATUS_OK);
    for (int i = 0; i < 300; i++) {
        char text[100];
        int size = snprintf(text, sizeof text, "<e%d x='%d' y%d='&e;'>&e;</e%d>", i, i, i, i);
        EXPECT(XML_Parse(parser, text, size, 0) == XML_STATUS_OK);
    }
    EXPECT(XML_Parse(parser, tail, sizeof tail - 1, 1) == XML_STATUS_OK);
    XML_ParserFree(parser);
    EXPECT(elements == 301);
}

int main(int count, char **arguments)
{
    return rounds(count, arguments, work);
}
