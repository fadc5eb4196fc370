// client COLLECTION URI…: as node/client.js, with mgo.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gopkg.in/mgo.v2"
	"gopkg.in/mgo.v2/bson"
)

func use(uri, name string, done *[]string) error {
	session, err := mgo.DialWithTimeout(uri, 2*time.Second)
	if err != nil {
		return err
	}
	defer session.Close()
	if _, err := session.BuildInfo(); err != nil {
		return err
	}
	*done = append(*done, "connect")
	things := session.DB("shop").C(name)
	for n := 0; n < 250; n++ {
		if err := things.Insert(bson.M{"_id": n, "a": n % 5}); err != nil {
			return err
		}
	}
	*done = append(*done, "insert")
	var found []bson.M
	if err := things.Find(nil).Batch(50).All(&found); err != nil || len(found) != 250 {
		return errors.Join(err, errors.New("not all found"))
	}
	*done = append(*done, "find")
	var first bson.M
	iterator := things.Find(nil).Batch(10).Iter()
	if !iterator.Next(&first) {
		return iterator.Err()
	}
	if err := iterator.Close(); err != nil {
		return err
	}
	*done = append(*done, "close")
	if _, err := things.UpdateAll(bson.M{"a": 1}, bson.M{"$set": bson.M{"b": 1}}); err != nil {
		return err
	}
	if err := things.Find(bson.M{"b": 1}).All(&found); err != nil || len(found) != 50 {
		return errors.Join(err, errors.New("not all updated"))
	}
	*done = append(*done, "update")
	group := bson.M{"$group": bson.M{"_id": "$a", "n": bson.M{"$sum": 1}}}
	if err := things.Pipe([]bson.M{group}).All(&found); err != nil || len(found) != 5 {
		return errors.Join(err, errors.New("not all groups"))
	}
	*done = append(*done, "aggregate")
	if err := things.Insert(bson.M{"_id": 1}); !mgo.IsDup(err) {
		return errors.Join(err, errors.New("no error for a duplicate key"))
	}
	*done = append(*done, "duplicate")
	if err := things.EnsureIndexKey("a"); err != nil {
		return err
	}
	if _, err := things.RemoveAll(bson.M{"a": 1}); err != nil {
		return err
	}
	if err := things.DropCollection(); err != nil {
		return err
	}
	*done = append(*done, "drop")
	return nil
}

func main() {
	for _, uri := range os.Args[2:] {
		var done []string
		text := ""
		if err := use(uri, os.Args[1], &done); err != nil {
			text = strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Printf("%s: %s\n", strings.Join(done, " "), text)
	}
}
