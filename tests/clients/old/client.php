<?php
// client.php COLLECTION URI…: as node/client.js, with PHP's extension mongodb.
use MongoDB\Driver\{BulkWrite, Command, Manager, Query};

function use_driver(string $uri, string $name, array &$done): void
{
    $manager = new Manager($uri);
    $manager->executeCommand("shop", new Command(["buildInfo" => 1]));
    $done[] = "connect";
    $bulk = new BulkWrite();
    for ($n = 0; $n < 250; $n++) {
        $bulk->insert(["_id" => $n, "a" => $n % 5]);
    }
    $manager->executeBulkWrite("shop.$name", $bulk);
    $done[] = "insert";
    $found = iterator_to_array($manager->executeQuery("shop.$name", new Query([], ["batchSize" => 50])), false);
    check(count($found) === 250, "not all found");
    $done[] = "find";
    $cursor = $manager->executeQuery("shop.$name", new Query([], ["batchSize" => 10]));
    $cursor->rewind();
    unset($cursor);
    $done[] = "close";
    $bulk = new BulkWrite();
    $bulk->update(["a" => 1], ['$set' => ["b" => 1]], ["multi" => true]);
    check($manager->executeBulkWrite("shop.$name", $bulk)->getModifiedCount() === 50, "not all updated");
    $done[] = "update";
    $stages = [['$group' => ["_id" => '$a', "n" => ['$sum' => 1]]]];
    $aggregate = ["aggregate" => $name, "pipeline" => $stages, "cursor" => new stdClass()];
    $groups = $manager->executeCommand("shop", new Command($aggregate))->toArray();
    check(count($groups) === 5, "not all groups");
    $done[] = "aggregate";
    $bulk = new BulkWrite();
    $bulk->insert(["_id" => 1]);
    try {
        $manager->executeBulkWrite("shop.$name", $bulk);
        throw new Exception("no error for a duplicate key");
    } catch (MongoDB\Driver\Exception\BulkWriteException $error) {
        check($error->getWriteResult()->getWriteErrors()[0]->getCode() === 11000, "another error");
        $done[] = "duplicate";
    }
    $index = ["createIndexes" => $name, "indexes" => [["key" => ["a" => 1], "name" => "a_1"]]];
    $manager->executeCommand("shop", new Command($index));
    $bulk = new BulkWrite();
    $bulk->delete(["a" => 1]);
    $manager->executeBulkWrite("shop.$name", $bulk);
    $manager->executeCommand("shop", new Command(["drop" => $name]));
    $done[] = "drop";
}

function check(bool $right, string $text): void
{
    if (!$right) {
        throw new Exception($text);
    }
}

foreach (array_slice($argv, 2) as $uri) {
    $done = [];
    $error = "";
    try {
        use_driver($uri, $argv[1], $done);
    } catch (Throwable $caught) {
        $error = preg_replace('/\s+/', " ", get_class($caught) . " " . $caught->getMessage());
    }
    echo implode(" ", $done), ": $error\n";
}
