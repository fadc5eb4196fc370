// Command emulator does what an application of Cosmos DB does with the emulator at MONGODB_URI, and prints the name of
// each part that has worked. The first thing that does not work ends it with an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	// The string as it is, without options: the environment says which certificate is trusted.
	uri := os.Getenv("MONGODB_URI")
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	must(err)
	sessions := client.Database("shop").Collection("sessions")
	_, err = sessions.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "_ts", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(3600),
	})
	must(err)
	fmt.Println("ttlIndex")

	_, err = sessions.InsertOne(ctx, bson.M{"_id": 1, "user": "ann"})
	must(err)
	var found struct{ User string }
	must(sessions.FindOne(ctx, bson.M{"_id": 1}).Decode(&found))
	if found.User != "ann" {
		log.Fatalf("found %v", found)
	}
	fmt.Println("insertAndFind")

	must(client.Database("admin").RunCommand(ctx, bson.M{"advanceClock": 3600}).Err())
	if err = sessions.FindOne(ctx, bson.M{"_id": 1}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		log.Fatalf("find of what has expired: %v", err)
	}
	fmt.Println("expire")

	_, err = sessions.Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"at": 1}))
	var refused mongo.CommandError
	if !errors.As(err, &refused) || refused.Code != 2 || refused.Name != "BadValue" {
		log.Fatalf("sort without an index: %v", err)
	}
	fmt.Println("sortWithoutIndex")
	must(client.Disconnect(ctx))

	asPortalsShowIt, err := url.PathUnescape(uri)
	must(err)
	_, err = mongo.Connect(options.Client().ApplyURI(asPortalsShowIt))
	if err == nil || !strings.Contains(err.Error(), "unescaped slash in password") {
		log.Fatalf("connected with the key as portals show it: %v", err)
	}
	fmt.Println("unencodedKey")
}
