/* client COLLECTION URI…: as node/client.js, with the C driver, libmongoc. */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>

static char done[256];
static bson_error_t error;

static void did(const char *part) {
    if (done[0])
        strcat(done, " ");
    strcat(done, part);
}

static bool fails(const char *text) {
    if (!error.code)
        bson_set_error(&error, 1, 1, "%s", text);
    return false;
}

static int count(mongoc_cursor_t *cursor) {
    const bson_t *document;
    int found = 0;
    while (mongoc_cursor_next(cursor, &document))
        found++;
    if (mongoc_cursor_error(cursor, &error))
        found = -1;
    mongoc_cursor_destroy(cursor);
    return found;
}

static mongoc_cursor_t *find(mongoc_collection_t *things, bson_t *filter, int batch) {
    bson_t *options = BCON_NEW("batchSize", BCON_INT32(batch));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(things, filter, options, NULL);
    bson_destroy(options);
    return cursor;
}

static bool use_driver(mongoc_client_t *client, const char *name) {
    bson_t reply, *empty = bson_new(), *build_info = BCON_NEW("buildInfo", BCON_INT32(1));
    mongoc_collection_t *things = mongoc_client_get_collection(client, "shop", name);
    if (!mongoc_client_command_simple(client, "shop", build_info, NULL, &reply, &error))
        return fails("buildInfo");
    did("connect");
    for (int n = 0; n < 250; n++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(n), "a", BCON_INT32(n % 5));
        if (!mongoc_collection_insert_one(things, document, NULL, NULL, &error))
            return fails("insert");
        bson_destroy(document);
    }
    did("insert");
    if (count(find(things, empty, 50)) != 250)
        return fails("not all found");
    did("find");
    const bson_t *first;
    mongoc_cursor_t *cursor = find(things, empty, 10);
    if (!mongoc_cursor_next(cursor, &first))
        return fails("nothing found");
    mongoc_cursor_destroy(cursor);
    did("close");
    bson_t *one = BCON_NEW("a", BCON_INT32(1)), *set = BCON_NEW("$set", "{", "b", BCON_INT32(1), "}");
    bson_t *marked = BCON_NEW("b", BCON_INT32(1));
    if (!mongoc_collection_update_many(things, one, set, NULL, NULL, &error) || count(find(things, marked, 100)) != 50)
        return fails("not all updated");
    did("update");
    bson_t *pipeline = BCON_NEW("pipeline", "[", "{", "$group", "{", "_id", "$a", "n", "{", "$sum", BCON_INT32(1), "}",
                                "}", "}", "]");
    if (count(mongoc_collection_aggregate(things, MONGOC_QUERY_NONE, pipeline, NULL, NULL)) != 5)
        return fails("not all groups");
    did("aggregate");
    bson_t *duplicate = BCON_NEW("_id", BCON_INT32(1));
    if (mongoc_collection_insert_one(things, duplicate, NULL, NULL, &error) || error.code != 11000)
        return fails("no error for a duplicate key");
    memset(&error, 0, sizeof error);
    did("duplicate");
    bson_t *index = BCON_NEW("createIndexes", BCON_UTF8(name), "indexes", "[", "{", "key", "{", "a", BCON_INT32(1), "}",
                             "name", "a_1", "}", "]");
    if (!mongoc_client_write_command_with_opts(client, "shop", index, NULL, &reply, &error) ||
        !mongoc_collection_delete_many(things, one, NULL, NULL, &error) || !mongoc_collection_drop(things, &error))
        return fails("drop");
    did("drop");
    mongoc_collection_destroy(things);
    return true;
}

int main(int count_of_arguments, char **arguments) {
    mongoc_init();
    for (int place = 2; place < count_of_arguments; place++) {
        mongoc_client_t *client = mongoc_client_new(arguments[place]);
        memset(&error, 0, sizeof error);
        done[0] = 0;
        if (!client)
            bson_set_error(&error, 1, 1, "the URI is refused");
        else
            use_driver(client, arguments[1]);
        printf("%s: %s\n", done, error.code ? error.message : "");
        fflush(stdout);
        mongoc_client_destroy(client);
    }
    mongoc_cleanup();
    return 0;
}
