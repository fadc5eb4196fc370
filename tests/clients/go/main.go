// Command client does what an application does with the server at MONGODB_URI, and prints the name of each part that
// has worked. The first thing that does not work ends it with an error.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var ctx = context.Background()

type cart struct {
	ID    int      `bson:"_id"`
	Owner string   `bson:"owner"`
	Items []string `bson:"items"`
	Total float64  `bson:"total,omitempty"`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Errorf(format, values...))
	}
}

func connect(client *mongo.Client) {
	must(client.Ping(ctx, nil))
	var hello bson.M
	must(client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	check(hello["isWritablePrimary"] == true, "hello: %v", hello)
	names, err := client.ListDatabaseNames(ctx, bson.D{})
	must(err)
	check(strings.Join(names, " ") == "admin config local", "databases: %v", names)
}

func crud(client *mongo.Client) {
	carts := client.Database("go").Collection("carts")
	_, err := carts.InsertMany(ctx, []cart{{1, "ann", []string{"pen"}, 0}, {2, "bob", nil, 2.5}, {3, "ann", nil, 4}})
	must(err)
	var found cart
	must(carts.FindOne(ctx, bson.D{{Key: "owner", Value: "ann"}}).Decode(&found))
	check(found.ID == 1 && found.Items[0] == "pen", "found %v", found)
	changed, err := carts.UpdateMany(ctx, bson.M{"items": nil}, bson.M{"$set": bson.M{"items": bson.A{}}})
	must(err)
	check(changed.ModifiedCount == 2, "modified %v", changed)
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	must(carts.FindOneAndUpdate(ctx, bson.M{"_id": 3}, bson.M{"$push": bson.M{"items": "ink"}}, after).Decode(&found))
	check(len(found.Items) == 1 && found.Items[0] == "ink", "updated %v", found)
	many := make([]any, 1000)
	for n := range many {
		many[n] = bson.D{{Key: "_id", Value: n + 10}, {Key: "owner", Value: "many"}, {Key: "total", Value: n % 10}}
	}
	_, err = carts.InsertMany(ctx, many)
	must(err)
	cursor, err := carts.Find(ctx, bson.M{"owner": "many"}, options.Find().SetBatchSize(100).SetSort(bson.M{"_id": -1}))
	must(err)
	var all []cart
	must(cursor.All(ctx, &all))
	check(len(all) == 1000 && all[0].ID == 1009, "read %d", len(all))
	cursor, err = carts.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.M{"owner": "many"}}},
		{{Key: "$group", Value: bson.M{"_id": "$total", "n": bson.M{"$sum": 1}}}},
	})
	must(err)
	var groups []bson.M
	must(cursor.All(ctx, &groups))
	check(len(groups) == 10 && groups[0]["n"] == int32(100), "groups %v", groups)
	bulk, err := carts.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewReplaceOneModel().SetFilter(bson.M{"_id": 2}).SetReplacement(cart{ID: 2, Owner: "eve"}),
		mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": 4}).SetUpdate(bson.M{"$set": bson.M{"owner": "dan"}}).SetUpsert(true),
		mongo.NewDeleteManyModel().SetFilter(bson.M{"owner": "many"}),
	})
	must(err)
	check(bulk.ModifiedCount == 1 && bulk.UpsertedCount == 1 && bulk.DeletedCount == 1000, "bulk %v", bulk)
	writes := []mongo.ClientBulkWrite{
		{Database: "go", Collection: "carts", Model: mongo.NewClientInsertOneModel().SetDocument(bson.M{"_id": 5})},
		{Database: "go", Collection: "carts", Model: mongo.NewClientDeleteOneModel().SetFilter(bson.M{"_id": 4})},
	}
	both, err := client.BulkWrite(ctx, writes)
	must(err)
	check(both.InsertedCount == 1 && both.DeletedCount == 1, "bulkWrite %v", both)
	count, err := carts.CountDocuments(ctx, bson.D{})
	must(err)
	check(count == 4, "count %d", count)
	var owners []string
	must(carts.Distinct(ctx, "owner", bson.D{}).Decode(&owners))
	check(strings.Join(owners, " ") == "ann eve", "owners %v", owners)
}

func ttl(client *mongo.Client) {
	coll := client.Database("go").Collection("expiring")
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "_ts", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(10),
	})
	must(err)
	_, err = coll.InsertMany(ctx, []any{
		bson.M{"_id": 1}, bson.M{"_id": 2, "ttl": 20}, bson.M{"_id": 3, "ttl": int64(-1)}, bson.M{"_id": 4, "ttl": 20.5},
	})
	must(err)
	for _, expected := range []string{"[2 3]", "[3]"} {
		must(client.Database("admin").RunCommand(ctx, bson.M{"advanceClock": 10}).Err())
		var ids []int
		must(coll.Distinct(ctx, "_id", bson.D{}).Decode(&ids))
		check(fmt.Sprint(ids) == expected, "left are %v, expected %s", ids, expected)
	}
}

func transactions(client *mongo.Client) {
	coll := client.Database("go").Collection("accounts")
	session, err := client.StartSession()
	must(err)
	defer session.EndSession(ctx)
	result, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := coll.InsertOne(ctx, bson.M{"_id": "ann", "balance": 10}); err != nil {
			return nil, err
		}
		outside, err := coll.CountDocuments(context.Background(), bson.D{})
		if err != nil {
			return nil, err
		}
		inside, err := coll.CountDocuments(ctx, bson.D{})
		return []int64{outside, inside}, err
	})
	must(err)
	check(fmt.Sprint(result) == "[0 1]", "seen %v", result)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		_, err := coll.DeleteOne(ctx, bson.M{"_id": "ann"})
		must(err)
		return nil, errors.New("given up")
	})
	check(err != nil && err.Error() == "given up", "ended with %v", err)
	count, err := coll.CountDocuments(ctx, bson.D{})
	must(err)
	check(count == 1, "aborted, yet %d are left", count)
}

func changeStreams(client *mongo.Client) {
	coll := client.Database("go").Collection("watched")
	type event struct {
		Operation string `bson:"operationType"`
		Full      bson.M `bson:"fullDocument"`
		Key       bson.M `bson:"documentKey"`
	}
	stream, err := coll.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	must(err)
	_, err = coll.InsertOne(ctx, bson.M{"_id": 1})
	must(err)
	_, err = coll.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$set": bson.M{"a": 2}})
	must(err)
	_, err = coll.DeleteOne(ctx, bson.M{"_id": 1})
	must(err)
	next := func(stream *mongo.ChangeStream) (seen event) {
		limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		check(stream.Next(limited), "no event: %v", stream.Err())
		must(stream.Decode(&seen))
		return seen
	}
	check(next(stream).Operation == "insert", "first is the insert")
	token := stream.ResumeToken()
	update := next(stream)
	check(update.Operation == "update" && update.Full == nil, "the document is gone: %v", update)
	must(stream.Close(ctx))
	stream, err = coll.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	must(err)
	check(next(stream).Operation == "update", "resumed after the insert")
	check(next(stream).Operation == "delete", "then the delete")
	must(stream.Close(ctx))
}

func gridFS(client *mongo.Client) {
	bucket := client.Database("go").GridFSBucket(options.GridFSBucket().SetChunkSizeBytes(1000))
	content := bytes.Repeat([]byte("0123456789"), 250)
	id, err := bucket.UploadFromStream(ctx, "digits.txt", bytes.NewReader(content))
	must(err)
	stream, err := bucket.OpenDownloadStreamByName(ctx, "digits.txt")
	must(err)
	back, err := io.ReadAll(stream)
	must(err)
	check(bytes.Equal(back, content), "read %d bytes", len(back))
	must(bucket.Delete(ctx, id))
	_, err = bucket.OpenDownloadStream(ctx, id)
	check(errors.Is(err, mongo.ErrFileNotFound), "deleted, yet: %v", err)
}

func errorShapes(client *mongo.Client) {
	db := client.Database("go")
	coll := db.Collection("strict")
	schema := bson.M{"$jsonSchema": bson.M{"required": bson.A{"name"}}}
	must(db.CreateCollection(ctx, "strict", options.CreateCollection().SetValidator(schema)))
	_, err := coll.InsertOne(ctx, bson.M{"_id": 1, "name": "ann"})
	must(err)
	_, err = coll.InsertOne(ctx, bson.M{"_id": 1, "name": "bob"})
	check(mongo.IsDuplicateKeyError(err), "duplicate key: %v", err)
	var failed mongo.WriteException
	_, err = coll.InsertOne(ctx, bson.M{"_id": 2})
	check(errors.As(err, &failed) && failed.WriteErrors[0].Code == 121, "validation: %v", err)
	_, present := failed.WriteErrors[0].Details.LookupErr("schemaRulesNotSatisfied")
	_, nested := failed.WriteErrors[0].Details.LookupErr("details", "schemaRulesNotSatisfied")
	check(present == nil || nested == nil, "errInfo: %v", failed.WriteErrors[0].Details)

	session, err := client.StartSession()
	must(err)
	defer session.EndSession(ctx)
	must(session.StartTransaction())
	within := mongo.NewSessionContext(ctx, session)
	check(coll.FindOne(within, bson.M{"_id": 1}).Err() == nil, "read in the transaction")
	_, err = coll.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$set": bson.M{"n": 1}})
	must(err)
	_, err = coll.UpdateOne(within, bson.M{"_id": 1}, bson.M{"$set": bson.M{"n": 2}})
	var refused mongo.CommandError
	check(errors.As(err, &refused) && refused.Code == 112, "write conflict: %v", err)
	check(refused.HasErrorLabel("TransientTransactionError"), "labels: %v", refused.Labels)
	must(session.AbortTransaction(ctx))
}

// wrongPassword logs in as the same user with a password that is not theirs.
func wrongPassword(uri string) {
	login := options.Client().ApplyURI(uri)
	login.Auth.Password = "not " + login.Auth.Password
	client, err := mongo.Connect(login)
	must(err)
	defer client.Disconnect(ctx)
	err = client.Ping(ctx, nil)
	check(err != nil && strings.Contains(err.Error(), "AuthenticationFailed"), "login: %v", err)
}

func main() {
	uri := os.Getenv("MONGODB_URI")
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(2 * time.Minute))
	must(err)
	defer func() {
		if failure := recover(); failure != nil {
			log.Fatal(failure)
		}
	}()
	for _, part := range []struct {
		name string
		run  func(*mongo.Client)
	}{
		{"connect", connect},
		{"crud", crud},
		{"ttl", ttl},
		{"transactions", transactions},
		{"changeStreams", changeStreams},
		{"gridFS", gridFS},
		{"errorShapes", errorShapes},
	} {
		part.run(client)
		fmt.Println(part.name)
	}
	if strings.Contains(uri, "@") {
		wrongPassword(uri)
		fmt.Println("wrongPassword")
	}
	must(client.Disconnect(ctx))
}
